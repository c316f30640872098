// Beam search: the best sequences of tokens by the sum of their tokens' log probabilities, as far as a search finds
// them that keeps `beam_size` beginnings of each sequence; with one beginning it is greedy.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::train {

struct BeamSearchOptions {
  int64_t beam_size = 4;   // 1: greedy
  int64_t max_length = 0;  // tokens of a sequence at most, its first one and its end included
  int32_t begin = 3;       // the first token of every sequence
  int32_t end = 2;         // the last one of a sequence that is whole
  int32_t padding = 1;     // what stands where no token has been chosen yet; another one than `end`
  // Sequences are compared by log probability / ((5 + n) / 6)^length_penalty, with n chosen tokens, the end among them
  // (Wu et al., "Google's neural machine translation system", 2016). 0: by log probability.
  double length_penalty = 0.6;
};

struct Decoded {
  std::vector<int32_t> tokens;  // without begin and end
  double log_probability = 0;   // of the tokens, and of the end where it is whole
  double score = 0;             // that by which it was compared
  bool is_whole = false;        // ends by itself, not at max_length
};

// The scores of the next tokens. `prefixes` i32[num_sequences * beam_size, max_length] hold `length` tokens each, then
// padding; row i belongs to sequence i / beam_size. Returns f32[num_sequences * beam_size, vocabulary]: logits, as a
// softmax takes them; a token whose logit is minus infinity is not chosen.
using NextScores = std::function<Tensor(const Tensor& prefixes, int64_t length)>;

// The best sequence for each of `num_sequences`, all of them searched side by side. A search goes on until no beginning
// can become better than the best whole sequence; a greedy one until its sequence is whole. Of equal candidates the one
// with the smaller place in the beam and token is taken, so that the result is the same everywhere. Padding and the
// first token are never chosen, but for a first token that is the end, too. Throws InvalidArgument for options that do
// not fit, for more than kMaxSearchedTokens, for scores of another type, and for a row of scores that has NaN or
// infinity or only minus infinities.
inline constexpr int64_t kMaxSearchedTokens = int64_t{1} << 28;  // num_sequences * beam_size * max_length
// Throws as beam_search() does for its options.
void check_beam_search(int64_t num_sequences, const BeamSearchOptions& options);
std::vector<Decoded> beam_search(int64_t num_sequences, const NextScores& next, const BeamSearchOptions& options);

}  // namespace tessera::train
