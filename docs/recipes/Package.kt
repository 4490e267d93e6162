// Run examples through a package on Android, with LiteRT's CompiledModel alone:
// implementation("com.google.ai.edge.litert:litert:2.3.0")

import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.security.MessageDigest
import org.json.JSONArray
import org.json.JSONObject

class Package(shipped: File, milliseconds: Double = Double.MAX_VALUE) : AutoCloseable {
    private val directory = current(shipped)
    val manifest = verified(directory)
    private val network = File(directory, "serve.tflite")
    private val signature = signatureWithin(milliseconds) + "_batch_1"
    private val model = CompiledModel.create(network.path, options())

    /** Run one example. Inputs are flattened float32 tensors by name. */
    fun run(inputs: Map<String, FloatArray>): Map<String, FloatArray> {
        val given = inputs.mapValues { (name, values) ->
            model.createInputBuffer(name, signature).apply { writeFloat(values) }
        }
        val made = objects(manifest.getJSONArray("outputs")).map { it.getString("name") }
            .associateWith { model.createOutputBuffer(it, signature) }
        try {
            model.run(given, made, signature)
            return made.mapValues { (_, buffer) -> buffer.readFloat() }
        } finally {
            (given.values + made.values).forEach { it.close() }
        }
    }

    /** Return the class names of an output in class order, or null if it has none. */
    fun labels(output: String): List<String>? =
        manifest.optJSONObject("labels")?.optJSONArray(output)?.let { names ->
            List(names.length()) { names.getString(it) }
        }

    /** Return a trainable weight from `serve.tflite`, in its own shape. */
    fun weight(name: String): FloatArray {
        val weights = objects(manifest.getJSONObject("training").getJSONArray("weights"))
        val weight = weights.single { it.getString("name") == name }
        val shape = integers(weight.getJSONArray("shape"))
        val strides = IntArray(shape.size) { axis -> shape.drop(axis + 1).fold(1, Int::times) }
        val values = FloatArray(shape.fold(1, Int::times))
        val content = ByteBuffer.wrap(network.readBytes()).order(ByteOrder.LITTLE_ENDIAN)
        for (place in objects(weight.getJSONArray("places"))) {
            val start = integers(place.getJSONArray("start"))
            val stop = integers(place.getJSONArray("stop"))
            val axes = integers(place.getJSONArray("axes")) // the order of the dimensions in the file
            val factor = place.getDouble("factor").toFloat()
            content.position(place.getInt("offset"))
            fun read(depth: Int, index: Int) {
                if (depth == axes.size) {
                    values[index] = content.getFloat() / factor
                } else {
                    val axis = axes[depth]
                    for (at in start[axis] until stop[axis]) read(depth + 1, index + at * strides[axis])
                }
            }
            read(0, 0)
        }
        return values
    }

    override fun close() = model.close()

    /** Return the signature of the most accurate branch within a latency, or of the cheapest if there is none. */
    private fun signatureWithin(milliseconds: Double): String {
        val branches = objects(manifest.getJSONArray("branches"))
        if (branches.isEmpty()) return "serving_default"
        val fitting = branches.indices.filter {
            branches[it].getJSONObject("latency").getDouble("median_ms") <= milliseconds
        }
        val metric = manifest.getString("metric")
        val sign = if (metric in listOf("mse", "mae") || metric.endsWith("_error")) -1 else 1 // lower is better
        val best = fitting.sortedByDescending { sign * branches[it].getDouble("validation_accuracy") }
        return "branch_${best.firstOrNull() ?: 0}"
    }

    private fun options() = CompiledModel.Options(Accelerator.CPU).apply {
        val threads = manifest.getJSONObject("latency").getInt("threads")
        cpuOptions = CompiledModel.CpuOptions(numThreads = threads)
    }

    private companion object {
        /** Return the current version, or the shipped package if it has not been tuned or replaced. */
        fun current(shipped: File): File {
            val version = File(shipped.path + ".state", "current").canonicalFile
            val digest = sha256(File(shipped, "manifest.json")).take(16)
            return if (version.isDirectory && version.name.startsWith(digest)) version else shipped
        }

        /** Return the manifest after verifying the digests of all files. */
        fun verified(directory: File): JSONObject {
            val manifest = JSONObject(File(directory, "manifest.json").readText())
            check(manifest.getInt("format_version") in 2..5) { "unsupported package format" }
            val files = manifest.getJSONObject("files")
            for (name in files.keys()) {
                val expected = files.getJSONObject(name).getString("sha256")
                check(sha256(File(directory, name)) == expected) { "$name is damaged" }
            }
            return manifest
        }

        fun sha256(file: File): String = MessageDigest.getInstance("SHA-256").digest(file.readBytes())
            .joinToString("") { "%02x".format(it) }

        fun objects(list: JSONArray) = List(list.length()) { list.getJSONObject(it) }

        fun integers(list: JSONArray) = List(list.length()) { list.getInt(it) }
    }
}
