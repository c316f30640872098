"""What help() of the classes of `mindspore.nn.transformer` says beside their own words, in the forms of _help/vision.py: n sequences of t tokens, of hidden_size
features each."""

ROWS = """
= Raises TypeError for what is no int and no OpParallelConfig, ValueError for a length that is not positive, and where it is called with a mask of another.
AttentionMask: f(4)(ms.Tensor(np.ones((2, 4), np.float32))) -> [2, 4, 4] || f(0) -> ValueError

= The rows are [n, t, embedding_size], float32. Raises TypeError for sizes that are no ints, and another config than an EmbeddingOpParallelConfig, ValueError
  for sizes that are not positive.
VocabEmbedding: rows, table = f(5, 4)(i) && assert rows.shape == (2, 3, 4) and table.shape == (5, 4) || f(0, 4) -> ValueError

= The mask is [n, t, t]: 1 where a token is seen, else 0. Raises TypeError for sizes that are no ints, ValueError for those that are not positive, and for a
  hidden_size that is no multiple of num_heads.
MultiHeadAttention: out, kept = f(2, 3, 3, 4, 2)(tokens, tokens, tokens, seen) && assert out.shape == (2, 3, 4) and kept is None || f(2, 3, 3, 4, 3) -> ValueError

= Raises TypeError for sizes that are no ints, ValueError for those that are not positive, a dropout_rate outside 0 to 1, and a hidden_act that there is not,
  NotImplementedError for experts.
FeedForward: f(4, 8, 0.1)(tokens) -> [2, 3, 4] || f(4, 8, 2.0) -> ValueError

= Raises TypeError for sizes that are no ints, ValueError for those that are not positive, and for a hidden_size that is no multiple of num_heads,
  NotImplementedError for experts.
TransformerEncoderLayer: out, kept = f(2, 4, 8, 2, 3)(tokens, seen) && assert out.shape == (2, 3, 4) and kept is None || f(2, 4, 8, 3, 3) -> ValueError

= Raises TypeError for sizes that are no ints, ValueError for those that are not positive, for a hidden_size that is no multiple of num_heads, and where it is
  called without encoder_output, NotImplementedError for experts.
TransformerDecoderLayer: out, kept = f(4, 8, 2, 2, 3, 3)(tokens, seen, tokens, seen) && assert out.shape == (2, 3, 4) and kept is None || f(4, 8, 3, 2, 3, 3) -> ValueError

= Raises what its layers raise, and TypeError for another config than a TransformerOpParallelConfig.
TransformerEncoder: out, kept = f(2, 2, 4, 8, 3, 2)(tokens, seen) && assert out.shape == (2, 3, 4) and kept == (None, None) || f(2, 0, 4, 8, 3, 2) -> ValueError
TransformerDecoder: out, kept = f(2, 2, 4, 8, 3, 3, 2)(tokens, seen, tokens, seen) && assert out.shape == (2, 3, 4) and kept == (None, None) || f(2, 2, 4, 8, 3, 3, 3) -> ValueError

= The output is [n, t, hidden_size] of the decoder. Raises what its layers raise, ValueError for an encoder_layers that is not positive, and where it is called
  without decoder_inputs, NotImplementedError for use_past beside decoder layers.
Transformer: out, encoded, decoded = f(4, 2, 8, 3, 3, 1, 1)(tokens, seen, tokens, seen, seen) && assert out.shape == (2, 3, 4) || f(4, 2, 8, 3, 3, 0) -> ValueError

= Raises TypeError for a config that is none, ValueError where it is called with shapes that do not fit.
CrossEntropyLoss: f()(x, labels, ms.Tensor([1.0, 1.0])) -> [] || f(3) -> TypeError

= Raises TypeError for what is no int, ValueError for one that is not positive.
OpParallelConfig: config = f(2, 4) && assert (config.data_parallel, config.model_parallel) == (2, 4) || f(0) -> ValueError

= Raises TypeError for numbers that are no ints and a vocab_emb_dp that is no bool, ValueError for a number that is not positive.
EmbeddingOpParallelConfig: config = f(2, 4, vocab_emb_dp=False) && assert not config.vocab_emb_dp || f(vocab_emb_dp=1) -> TypeError

= Raises TypeError for numbers that are no ints and settings that are no bools, ValueError for a number that is not positive, NotImplementedError for an
  expert_parallel above 1.
TransformerOpParallelConfig: config = f(2, 4, recompute=True) && assert config.recompute.recompute || f(expert_parallel=2) -> NotImplementedError

= Raises TypeError for what is no bool.
TransformerRecomputeConfig: config = f(True) && assert config.recompute and config.mp_comm_recompute || f(1) -> TypeError
"""
