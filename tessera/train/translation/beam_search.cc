#include "tessera/train/translation/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

}  // namespace

void check_beam_search(int64_t num_sequences, const BeamSearchOptions& options) {
  if (num_sequences < 1 || options.beam_size < 1) {
    throw InvalidArgument("beam search: needs at least one sequence and a beam_size of at least 1, got {} and {}",
                          num_sequences, options.beam_size);
  }
  if (options.max_length < 2) {
    throw InvalidArgument("beam search: max_length must be at least 2, the first token and one more, got {}",
                          options.max_length);
  }
  if (!std::isfinite(options.length_penalty) || options.length_penalty < 0) {
    throw InvalidArgument("beam search: length_penalty must be at least 0, got {}", options.length_penalty);
  }
  if (options.end == options.padding) {
    throw InvalidArgument("beam search: end and padding must be two tokens, both are {}", options.end);
  }
  int64_t tokens = 0;
  if (__builtin_mul_overflow(num_sequences, options.beam_size, &tokens) ||
      __builtin_mul_overflow(tokens, options.max_length, &tokens) || tokens > kMaxSearchedTokens) {
    throw InvalidArgument(
        "beam search: {} sequences with a beam_size of {} and a max_length of {} are more than {} tokens; search "
        "fewer sequences at once",
        num_sequences, options.beam_size, options.max_length, kMaxSearchedTokens);
  }
}

namespace {

// The beginning of a sequence.
struct Beginning {
  std::vector<int32_t> tokens;
  double log_probability = kNone;  // kNone: the place is empty
};

// A beginning with one more token.
struct Candidate {
  double log_probability = kNone;
  size_t beginning = 0;
  int32_t token = 0;
  // The better one first.
  bool operator<(const Candidate& other) const {
    if (log_probability != other.log_probability) return log_probability > other.log_probability;
    return beginning != other.beginning ? beginning < other.beginning : token < other.token;
  }
};

// The logarithm of the sum of the exponentials of logits.
double log_normalizer(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// The search for one sequence.
class Beam {
 public:
  explicit Beam(const BeamSearchOptions& options)
      : options_(options), beginnings_(static_cast<size_t>(options.beam_size)) {
    beginnings_[0].log_probability = 0;
  }

  // Writes the rows of its beginnings.
  void write(std::span<int32_t> rows) const {
    const auto length = static_cast<size_t>(options_.max_length);
    std::fill(rows.begin(), rows.end(), options_.padding);
    for (size_t i = 0; i < beginnings_.size(); ++i) {
      rows[i * length] = options_.begin;
      std::copy(beginnings_[i].tokens.begin(), beginnings_[i].tokens.end(),
                rows.begin() + static_cast<int64_t>(i * length) + 1);
    }
  }

  // Takes a row of scores for each beginning.
  void advance(std::span<const float> scores, size_t vocabulary) {
    if (is_done_) return;
    const auto candidates = best_candidates(scores, vocabulary);
    std::vector<Beginning> longer;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      const auto& tokens = beginnings_[candidate.beginning].tokens;
      if (candidate.token == options_.end) {
        // An end counts where it is among the best, as any other token would have to be.
        if (i < beginnings_.size()) finish(tokens, candidate.log_probability, true);
      } else if (longer.size() < beginnings_.size()) {
        longer.push_back({tokens, candidate.log_probability});
        longer.back().tokens.push_back(candidate.token);
      }
    }
    longer.resize(beginnings_.size());
    beginnings_ = std::move(longer);
    // What is begun gets no more probable, and the penalty divides by no more than that of the greatest length.
    const double most = beginnings_[0].log_probability;
    const bool is_hopeless = best_ && best_->score >= score(most, options_.max_length - 1);
    const bool is_greedy_end = best_ && options_.beam_size == 1;
    is_done_ = is_greedy_end || is_hopeless || most == kNone;
  }

  bool is_done() const { return is_done_; }
  Decoded best() {
    if (!best_) finish(beginnings_[0].tokens, beginnings_[0].log_probability, false);
    return *best_;
  }

 private:
  double score(double log_probability, int64_t num_tokens) const {
    return log_probability / std::pow(static_cast<double>(5 + num_tokens) / 6, options_.length_penalty);
  }
  void finish(const std::vector<int32_t>& tokens, double log_probability, bool is_whole) {
    const auto chosen = std::ssize(tokens) + (is_whole ? 1 : 0);
    const Decoded found{tokens, log_probability, score(log_probability, chosen), is_whole};
    if (!best_ || found.score > best_->score) best_ = found;
  }
  // Twice as many as there are places, so that these are filled even where half of the candidates end.
  std::vector<Candidate> best_candidates(std::span<const float> scores, size_t vocabulary) const {
    const size_t wanted = 2 * beginnings_.size();
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < beginnings_.size(); ++i) {
      if (beginnings_[i].log_probability == kNone) continue;
      const auto logits = scores.subspan(i * vocabulary, vocabulary);
      const double normalizer = log_normalizer(logits);
      if (!std::isfinite(normalizer))
        throw InvalidArgument("beam search: scores must be finite, their sum is {}", normalizer);
      std::vector<Candidate> own;
      for (size_t token = 0; token < vocabulary; ++token) {
        const auto id = static_cast<int32_t>(token);
        const bool is_never_chosen = id == options_.padding || id == options_.begin;
        if ((is_never_chosen && id != options_.end) || logits[token] == kNone) continue;
        own.push_back({beginnings_[i].log_probability + logits[token] - normalizer, i, id});
      }
      const auto middle = own.begin() + static_cast<int64_t>(std::min(wanted, own.size()));
      std::partial_sort(own.begin(), middle, own.end());
      candidates.insert(candidates.end(), own.begin(), middle);
    }
    std::sort(candidates.begin(), candidates.end());
    if (candidates.size() > wanted) candidates.resize(wanted);
    return candidates;
  }

  const BeamSearchOptions& options_;
  std::vector<Beginning> beginnings_;  // the best first
  std::optional<Decoded> best_;        // of the finished ones
  bool is_done_ = false;
};

}  // namespace

std::vector<Decoded> beam_search(int64_t num_sequences, const NextScores& next, const BeamSearchOptions& options) {
  check_beam_search(num_sequences, options);
  const int64_t rows = num_sequences * options.beam_size;
  std::vector<Beam> beams(static_cast<size_t>(num_sequences), Beam(options));
  Tensor prefixes(DType::kI32, {rows, options.max_length});
  const auto ids_of_beam = static_cast<size_t>(options.beam_size * options.max_length);
  for (int64_t length = 1; length < options.max_length; ++length) {
    const auto ids = prefixes.values<int32_t>();
    for (size_t i = 0; i < beams.size(); ++i) beams[i].write(ids.subspan(i * ids_of_beam, ids_of_beam));
    const Tensor scores = next(prefixes, length);
    if (scores.dtype() != DType::kF32 || scores.ndim() != 2 || scores.shape()[0] != rows || scores.shape()[1] < 1) {
      throw InvalidArgument("beam search: scores must be f32[{},vocabulary], are {}", rows, scores.type());
    }
    const auto vocabulary = static_cast<size_t>(scores.shape()[1]);
    const auto scores_of_beam = static_cast<size_t>(options.beam_size) * vocabulary;
    const auto values = scores.values<float>();
    for (size_t i = 0; i < beams.size(); ++i)
      beams[i].advance(values.subspan(i * scores_of_beam, scores_of_beam), vocabulary);
    if (std::all_of(beams.begin(), beams.end(), [](const Beam& beam) { return beam.is_done(); })) break;
  }
  std::vector<Decoded> found;
  for (Beam& beam : beams) found.push_back(beam.best());
  return found;
}

}  // namespace tessera::train
