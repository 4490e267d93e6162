// Run examples through a package on iOS and macOS, with the Swift package LiteRT alone.

import CryptoKit
import Foundation
import LiteRT

/// The parts of `manifest.json` that are used here.
struct Manifest: Decodable {
  struct File: Decodable { let sha256: String }
  struct Tensor: Decodable { let name: String }
  struct Latency: Decodable { let median_ms: Double }
  struct Branch: Decodable { let validation_accuracy: Double; let latency: Latency }
  struct Place: Decodable { let offset: Int; let start, stop, axes: [Int]; let factor: Float }
  struct Weight: Decodable { let name: String; let shape: [Int]; let places: [Place] }
  struct Training: Decodable { let weights: [Weight] }

  let format_version: Int
  let metric: String
  let inputs, outputs: [Tensor]
  let branches: [Branch]
  let files: [String: File]
  let labels: [String: [String]]?
  let training: Training?
}

enum PackageError: Error { case format(Int), damaged(String), noSignature(String), noInput(String), noWeight(String) }

final class Package {
  let manifest: Manifest
  private let network: URL
  private let compiled: CompiledModel
  private let signature: Int

  init(shipped: URL, milliseconds: Double = .infinity) throws {
    let directory = try Package.current(shipped)
    let manifest = try Package.verified(directory)
    let network = directory.appendingPathComponent("serve.tflite")
    let options = try Options()
    try options.setHardwareAccelerators([.cpu])
    let model = try Model(filePath: network.path)
    let key = Package.signature(manifest, within: milliseconds) + "_batch_1"
    guard let index = try model.signatureKeys().firstIndex(of: key) else { throw PackageError.noSignature(key) }
    self.manifest = manifest
    self.network = network
    signature = index
    compiled = try CompiledModel(environment: try Environment(), model: model, options: options)
  }

  /// Runs one example. Inputs are flattened float32 tensors by name.
  func run(_ inputs: [String: [Float]]) throws -> [String: [Float]] {
    let given = try compiled.createInputBuffers(signatureIndex: signature)
    for (number, buffer) in given.enumerated() {
      let name = try compiled.inputName(inputIndex: number, signatureIndex: signature)
      guard let values = inputs[name] else { throw PackageError.noInput(name) }
      try buffer.write(values)
    }
    let made = try compiled.createOutputBuffers(signatureIndex: signature)
    try compiled.run(inputs: given, outputs: made, signatureIndex: signature)
    var outputs: [String: [Float]] = [:]
    for (number, buffer) in made.enumerated() {
      outputs[try compiled.outputName(outputIndex: number, signatureIndex: signature)] = try buffer.read()
    }
    return outputs
  }

  /// Returns a trainable weight from `serve.tflite`, in its own shape.
  func weight(_ name: String) throws -> [Float] {
    guard let weight = manifest.training?.weights.first(where: { $0.name == name }) else {
      throw PackageError.noWeight(name)
    }
    let content = try Data(contentsOf: network)
    let strides = weight.shape.indices.map { weight.shape[($0 + 1)...].reduce(1, *) }
    var values = [Float](repeating: 0, count: weight.shape.reduce(1, *))
    for place in weight.places {
      var offset = place.offset
      func read(_ depth: Int, _ index: Int) {
        guard depth < place.axes.count else {
          let bits = content[offset..<offset + 4].reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
          values[index] = Float(bitPattern: bits) / place.factor
          offset += 4
          return
        }
        let axis = place.axes[depth]  // the order of the dimensions in the file
        for at in place.start[axis]..<place.stop[axis] { read(depth + 1, index + at * strides[axis]) }
      }
      read(0, 0)
    }
    return values
  }

  /// Returns the signature of the most accurate branch within a latency, or of the cheapest if there is none.
  private static func signature(_ manifest: Manifest, within milliseconds: Double) -> String {
    if manifest.branches.isEmpty { return "serving_default" }
    let lowerIsBetter = ["mse", "mae"].contains(manifest.metric) || manifest.metric.hasSuffix("_error")
    let sign: Double = lowerIsBetter ? -1 : 1
    let fitting = manifest.branches.enumerated().filter { $0.element.latency.median_ms <= milliseconds }
    let best = fitting.max { sign * $0.element.validation_accuracy < sign * $1.element.validation_accuracy }
    return "branch_\(best?.offset ?? 0)"
  }

  /// Returns the current version, or the shipped package if it has not been tuned or replaced.
  private static func current(_ shipped: URL) throws -> URL {
    let digest = try sha256(shipped.appendingPathComponent("manifest.json")).prefix(16)
    let link = URL(fileURLWithPath: shipped.path + ".state/current")
    let version = link.resolvingSymlinksInPath()
    return version != link && version.lastPathComponent.hasPrefix(digest) ? version : shipped
  }

  /// Returns the manifest after verifying the digests of all files.
  private static func verified(_ directory: URL) throws -> Manifest {
    let content = try Data(contentsOf: directory.appendingPathComponent("manifest.json"))
    let manifest = try JSONDecoder().decode(Manifest.self, from: content)
    guard (2...5).contains(manifest.format_version) else { throw PackageError.format(manifest.format_version) }
    for (name, file) in manifest.files {
      let digest = try sha256(directory.appendingPathComponent(name))
      guard digest == file.sha256 else { throw PackageError.damaged(name) }
    }
    return manifest
  }

  private static func sha256(_ file: URL) throws -> String {
    SHA256.hash(data: try Data(contentsOf: file)).map { String(format: "%02x", $0) }.joined()
  }
}
