import tensorflow as tf

# Tests train small networks briefly, for which optimizing the graphs takes longer than it saves.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
