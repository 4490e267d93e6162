// Run one example through a package, with LiteRT's C API alone.
//
//   package PACKAGE MILLISECONDS INPUT... > OUTPUTS    raw tensors, in the order of the manifest
//   package PACKAGE weight NAME > WEIGHT               a trainable weight, float32

//
// g++ -std=c++17 package.cpp -o package libLiteRt.so -lcrypto       (nlohmann-json3-dev, libssl-dev)

#include <nlohmann/json.hpp>
#include <openssl/sha.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

// Declarations from LiteRT's headers (litert/c/litert_compiled_model.h and others), as of LiteRT 2.3.
extern "C" {
using LiteRtStatus = int;  // 0 is success
typedef struct LiteRtEnvironmentT* LiteRtEnvironment;
typedef struct LiteRtModelT* LiteRtModel;
typedef struct LiteRtSignatureT* LiteRtSignature;
typedef struct LiteRtTensorT* LiteRtTensor;
typedef struct LiteRtOptionsT* LiteRtOptions;
typedef struct LiteRtCompiledModelT* LiteRtCompiledModel;
typedef struct LiteRtTensorBufferT* LiteRtTensorBuffer;
typedef struct LiteRtTensorBufferRequirementsT* LiteRtTensorBufferRequirements;
struct LiteRtRankedTensorType { alignas(8) unsigned char content[256]; };  // opaque

LiteRtStatus LiteRtCreateEnvironment(int, const void* options, LiteRtEnvironment*);
LiteRtStatus LiteRtCreateModelFromFile(LiteRtEnvironment, const char* path, LiteRtModel*);
LiteRtStatus LiteRtGetNumModelSignatures(LiteRtModel, size_t*);
LiteRtStatus LiteRtGetModelSignature(LiteRtModel, size_t, LiteRtSignature*);
LiteRtStatus LiteRtGetSignatureKey(LiteRtSignature, const char**);
LiteRtStatus LiteRtGetNumSignatureInputs(LiteRtSignature, size_t*);
LiteRtStatus LiteRtGetNumSignatureOutputs(LiteRtSignature, size_t*);
LiteRtStatus LiteRtGetSignatureInputName(LiteRtSignature, size_t, const char**);
LiteRtStatus LiteRtGetSignatureOutputName(LiteRtSignature, size_t, const char**);
LiteRtStatus LiteRtGetSignatureInputTensorByIndex(LiteRtSignature, size_t, LiteRtTensor*);
LiteRtStatus LiteRtGetSignatureOutputTensorByIndex(LiteRtSignature, size_t, LiteRtTensor*);
LiteRtStatus LiteRtGetRankedTensorType(LiteRtTensor, LiteRtRankedTensorType*);
LiteRtStatus LiteRtCreateOptions(LiteRtOptions*);
LiteRtStatus LiteRtSetOptionsHardwareAccelerators(LiteRtOptions, int set);
LiteRtStatus LiteRtCreateCompiledModel(LiteRtEnvironment, LiteRtModel, LiteRtOptions, LiteRtCompiledModel*);
LiteRtStatus LiteRtGetCompiledModelInputBufferRequirements(
    LiteRtCompiledModel, size_t signature, size_t input, LiteRtTensorBufferRequirements*);
LiteRtStatus LiteRtGetCompiledModelOutputBufferRequirements(
    LiteRtCompiledModel, size_t signature, size_t output, LiteRtTensorBufferRequirements*);
LiteRtStatus LiteRtCreateManagedTensorBufferFromRequirements(
    LiteRtEnvironment, const LiteRtRankedTensorType*, LiteRtTensorBufferRequirements, LiteRtTensorBuffer*);
LiteRtStatus LiteRtGetTensorBufferPackedSize(LiteRtTensorBuffer, size_t*);
LiteRtStatus LiteRtLockTensorBuffer(LiteRtTensorBuffer, void** content, int mode);
LiteRtStatus LiteRtUnlockTensorBuffer(LiteRtTensorBuffer);
LiteRtStatus LiteRtRunCompiledModel(
    LiteRtCompiledModel, size_t signature, size_t, LiteRtTensorBuffer* inputs, size_t, LiteRtTensorBuffer* outputs);
}

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kCpu = 1, kRead = 0, kWrite = 1;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string sha256(const std::string& content) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(content.data()), content.size(), digest);
  std::string hex;
  for (unsigned char byte : digest) hex += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return hex;
}

// Return the current version, or the shipped package if it has not been tuned or replaced.
fs::path current(const fs::path& package) {
  fs::path link = fs::canonical(package).string() + ".state/current";
  std::string shipped = sha256(content_of(package / "manifest.json")).substr(0, 16);
  std::error_code none;
  fs::path version = fs::canonical(link, none);  // valid if its name begins with the digest
  return !none && version.filename().string().rfind(shipped, 0) == 0 ? version : package;
}

// Return the manifest after verifying the digests of all files.
json verified(const fs::path& package) {
  json manifest = json::parse(content_of(package / "manifest.json"));
  int format = manifest["format_version"];
  if (format < 2 || format > 5) throw std::runtime_error("unsupported package format");
  for (auto& [name, file] : manifest["files"].items())
    if (sha256(content_of(package / name)) != file["sha256"]) throw std::runtime_error(name + " is damaged");
  return manifest;
}

// Return the most accurate branch within a latency, or the cheapest if there is none.
size_t chosen_branch(const json& manifest, double milliseconds) {
  std::string metric = manifest["metric"], end = "_error";
  bool lower_is_better = metric == "mse" || metric == "mae" ||
      (metric.size() >= end.size() && metric.compare(metric.size() - end.size(), end.size(), end) == 0);
  size_t best = manifest["branches"].size();
  double accuracy = 0;
  for (size_t number = 0; number < manifest["branches"].size(); ++number) {
    const json& branch = manifest["branches"][number];
    double own = branch["validation_accuracy"];
    if (branch["latency"]["median_ms"] > milliseconds) continue;
    bool better = lower_is_better ? own < accuracy : own > accuracy;
    if (best == manifest["branches"].size() || better) best = number, accuracy = own;
  }
  return best == manifest["branches"].size() ? 0 : best;
}

void check(LiteRtStatus status, const char* what) {
  if (status != 0) throw std::runtime_error(std::string(what) + ": LiteRT status " + std::to_string(status));
}

// A signature of a network, for one example at a time.
class Network {
 public:
  Network(const fs::path& path, const std::string& key) {
    LiteRtOptions options;
    check(LiteRtCreateEnvironment(0, nullptr, &environment_), "environment");
    check(LiteRtCreateModelFromFile(environment_, path.c_str(), &model_), path.c_str());
    check(LiteRtCreateOptions(&options), "options");
    check(LiteRtSetOptionsHardwareAccelerators(options, kCpu), "accelerator");
    check(LiteRtCreateCompiledModel(environment_, model_, options, &compiled_), "compilation");
    find_signature(key);
    LiteRtGetNumSignatureInputs(signature_, &count_of_inputs_);
    LiteRtGetNumSignatureOutputs(signature_, &count_of_outputs_);
    for (size_t i = 0; i < count_of_inputs_; ++i)
      buffers_.push_back(buffer(i, LiteRtGetSignatureInputTensorByIndex, LiteRtGetCompiledModelInputBufferRequirements));
    for (size_t i = 0; i < count_of_outputs_; ++i)
      buffers_.push_back(buffer(i, LiteRtGetSignatureOutputTensorByIndex, LiteRtGetCompiledModelOutputBufferRequirements));
  }

  void set(const std::string& name, const std::string& bytes) {
    LiteRtTensorBuffer buffer = buffers_[place(name, count_of_inputs_, LiteRtGetSignatureInputName)];
    if (bytes.size() != size(buffer))
      throw std::runtime_error(name + " requires " + std::to_string(size(buffer)) + " bytes");
    void* content;
    check(LiteRtLockTensorBuffer(buffer, &content, kWrite), "input");
    std::memcpy(content, bytes.data(), bytes.size());
    LiteRtUnlockTensorBuffer(buffer);
  }

  void run() {
    check(LiteRtRunCompiledModel(compiled_, index_, count_of_inputs_, buffers_.data(), count_of_outputs_,
                                 buffers_.data() + count_of_inputs_), "inference");
  }

  std::string get(const std::string& name) {
    LiteRtTensorBuffer buffer =
        buffers_[count_of_inputs_ + place(name, count_of_outputs_, LiteRtGetSignatureOutputName)];
    void* content;
    check(LiteRtLockTensorBuffer(buffer, &content, kRead), "output");
    std::string bytes(static_cast<char*>(content), size(buffer));
    LiteRtUnlockTensorBuffer(buffer);
    return bytes;
  }

 private:
  void find_signature(const std::string& key) {
    size_t count;
    LiteRtGetNumModelSignatures(model_, &count);
    for (index_ = 0; index_ < count; ++index_) {
      const char* own;
      LiteRtGetModelSignature(model_, index_, &signature_);
      LiteRtGetSignatureKey(signature_, &own);
      if (key == own) return;
    }
    throw std::runtime_error("unknown signature " + key);
  }

  template <typename GetTensor, typename GetRequirements>
  LiteRtTensorBuffer buffer(size_t i, GetTensor get_tensor, GetRequirements get_requirements) {
    LiteRtTensor tensor;
    LiteRtRankedTensorType type;
    LiteRtTensorBufferRequirements requirements;
    LiteRtTensorBuffer buffer;
    check(get_tensor(signature_, i, &tensor), "tensor");
    check(LiteRtGetRankedTensorType(tensor, &type), "type");
    check(get_requirements(compiled_, index_, i, &requirements), "requirements");
    check(LiteRtCreateManagedTensorBufferFromRequirements(environment_, &type, requirements, &buffer), "buffer");
    return buffer;
  }

  template <typename GetName>
  size_t place(const std::string& name, size_t count, GetName get_name) {
    for (size_t i = 0; i < count; ++i) {
      const char* own;
      get_name(signature_, i, &own);
      if (name == own) return i;
    }
    throw std::runtime_error("unknown tensor " + name);
  }

  static size_t size(LiteRtTensorBuffer buffer) {
    size_t bytes;
    LiteRtGetTensorBufferPackedSize(buffer, &bytes);
    return bytes;
  }

  LiteRtEnvironment environment_;
  LiteRtModel model_;
  LiteRtCompiledModel compiled_;
  LiteRtSignature signature_;
  size_t index_, count_of_inputs_, count_of_outputs_;
  std::vector<LiteRtTensorBuffer> buffers_;  // inputs, then outputs
};

// Return a trainable weight from `serve.tflite`, in its own shape.
std::vector<float> weight(const json& manifest, const std::string& network, const std::string& name) {
  for (const json& trained : manifest["training"]["weights"]) {
    if (trained["name"] != name) continue;
    std::vector<size_t> shape = trained["shape"], strides(shape.size(), 1);
    for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
    std::vector<float> values(shape.empty() ? 1 : strides[0] * shape[0]);
    for (const json& place : trained["places"]) {
      std::vector<size_t> start = place["start"], stop = place["stop"], axes = place["axes"];
      size_t offset = place["offset"];
      std::function<void(size_t, size_t)> read = [&](size_t depth, size_t index) {
        if (depth == axes.size()) {  // `axes` is the order of the dimensions in the file
          float value;
          std::memcpy(&value, network.data() + offset, sizeof value);
          values[index] = value / place["factor"].get<float>();
          offset += sizeof value;
          return;
        }
        size_t axis = axes[depth];
        for (size_t at = start[axis]; at < stop[axis]; ++at) read(depth + 1, index + at * strides[axis]);
      };
      read(0, 0);
    }
    return values;
  }
  throw std::runtime_error("unknown weight " + name);
}

int main(int count, char** arguments) try {
  if (count < 4) throw std::runtime_error("usage: package PACKAGE MILLISECONDS INPUT... | package PACKAGE weight NAME");
  fs::path version = current(arguments[1]);
  json manifest = verified(version);
  if (arguments[2] == std::string("weight")) {
    std::vector<float> values = weight(manifest, content_of(version / "serve.tflite"), arguments[3]);
    std::cout.write(reinterpret_cast<char*>(values.data()), values.size() * sizeof(float));
    return 0;
  }
  std::string signature = "serving_default";
  if (!manifest["branches"].empty())
    signature = "branch_" + std::to_string(chosen_branch(manifest, std::stod(arguments[2])));
  Network network(version / "serve.tflite", signature + "_batch_1");
  if (manifest["inputs"].size() != size_t(count - 3)) throw std::runtime_error("one file per input is required");
  for (size_t i = 0; i < manifest["inputs"].size(); ++i)
    network.set(manifest["inputs"][i]["name"], content_of(arguments[3 + i]));
  network.run();
  for (const json& output : manifest["outputs"]) {
    std::string bytes = network.get(output["name"]);
    std::cout.write(bytes.data(), bytes.size());
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
