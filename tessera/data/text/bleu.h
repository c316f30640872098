// BLEU (Papineni et al., 2002), as sacrebleu defines it for a corpus (Post, "A call for clarity in reporting BLEU
// scores", 2018): tokens by mteval's v13a, n-grams of 1 to 4 tokens, exponential smoothing, no effective order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

struct BleuScore {
  double score = 0;  // 0 to 100
  // Of 1 to 4 tokens: those of the hypotheses that a reference has, too, and all of them.
  std::array<int64_t, 4> matches = {};
  std::array<int64_t, 4> totals = {};
  std::array<double, 4> precisions = {};  // in percent, smoothed
  double brevity_penalty = 0;
  int64_t hypothesis_tokens = 0;
  int64_t reference_tokens = 0;
};

struct BleuOptions {
  // Tokens are what tokenize_13a() makes; false: what stands between white space.
  bool tokenize = true;
};

// references[i] are the translations of sentence i that are right, at least one. Throws InvalidArgument where there is
// no hypothesis, or not as many lists of references.
BleuScore bleu(const std::vector<std::string>& hypotheses, const std::vector<std::vector<std::string>>& references,
               const BleuOptions& options = {});

// The tokens of a line as mteval-v13a.pl finds them: punctuation stands by itself, but within numbers.
std::vector<std::string> tokenize_13a(std::string_view line);

}  // namespace tessera::data
