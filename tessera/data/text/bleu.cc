#include "tessera/data/text/bleu.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/data/text/unicode.h"

namespace tessera::data {
namespace {

constexpr size_t kOrders = 4;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }
// ASCII's punctuation but apostrophe, hyphen, stop and comma.
bool is_separate(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

// Every pair of neighbours that `matches`, from the left, a character belonging to one pair at most; `write` says what
// stands in its place. Bytes of UTF-8 are no characters, but all that matters here is ASCII.
template <typename Matches, typename Write>
std::string replace_pairs(const std::string& text, Matches matches, Write write) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      write(out, text[i], text[i + 1]);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

// How often each n-gram of up to four tokens is there. Tokens have no spaces, so that one between them is unambiguous.
struct Ngrams {
  std::array<std::unordered_map<std::string, int64_t>, kOrders> counts;

  explicit Ngrams(const std::vector<std::string>& tokens) {
    for (size_t begin = 0; begin < tokens.size(); ++begin) {
      std::string gram;
      for (size_t n = 0; n < kOrders && begin + n < tokens.size(); ++n) {
        if (n > 0) gram += ' ';
        gram += tokens[begin + n];
        ++counts[n][gram];
      }
    }
  }
  // Takes the larger count of each.
  void merge(const Ngrams& other) {
    for (size_t n = 0; n < kOrders; ++n) {
      for (const auto& [gram, count] : other.counts[n]) {
        auto& own = counts[n][gram];
        own = std::max(own, count);
      }
    }
  }
};

std::vector<std::string> tokens_of(const std::string& line, const BleuOptions& options) {
  if (options.tokenize) return tokenize_13a(strip_space(line));
  const auto words = split_words(line);
  return {words.begin(), words.end()};
}

void add_sentence(const std::string& hypothesis, const std::vector<std::string>& references, const BleuOptions& options,
                  BleuScore& into) {
  const auto tokens = tokens_of(hypothesis, options);
  const auto length = std::ssize(tokens);
  int64_t closest = -1;
  Ngrams known({});
  for (const std::string& reference : references) {
    const auto right = tokens_of(reference, options);
    const auto difference = [&](int64_t other) { return std::pair(std::abs(other - length), other); };
    if (closest < 0 || difference(std::ssize(right)) < difference(closest)) closest = std::ssize(right);
    known.merge(Ngrams(right));
  }
  const Ngrams found(tokens);
  for (size_t n = 0; n < kOrders; ++n) {
    for (const auto& [gram, count] : found.counts[n]) {
      into.totals[n] += count;
      const auto right = known.counts[n].find(gram);
      if (right != known.counts[n].end()) into.matches[n] += std::min(count, right->second);
    }
  }
  into.hypothesis_tokens += length;
  into.reference_tokens += closest;
}

void finish(BleuScore& score) {
  const auto hypothesis = static_cast<double>(score.hypothesis_tokens);
  const auto reference = static_cast<double>(score.reference_tokens);
  score.brevity_penalty = hypothesis >= reference ? 1 : hypothesis > 0 ? std::exp(1 - reference / hypothesis) : 0;
  if (std::all_of(score.matches.begin(), score.matches.end(), [](int64_t n) { return n == 0; })) return;
  double smoothing = 1;
  double logarithms = 0;
  for (size_t n = 0; n < kOrders; ++n) {
    if (score.totals[n] == 0) return;  // no precision of that order: the score is 0
    const auto total = static_cast<double>(score.totals[n]);
    if (score.matches[n] == 0) smoothing *= 2;
    score.precisions[n] =
        score.matches[n] == 0 ? 100 / (smoothing * total) : 100 * static_cast<double>(score.matches[n]) / total;
    logarithms += std::log(score.precisions[n]);
  }
  score.score = score.brevity_penalty * std::exp(logarithms / kOrders);
}

}  // namespace

std::vector<std::string> tokenize_13a(std::string_view line) {
  std::string text(line);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  std::string spaced = " ";
  for (const char c : text + " ") {
    if (is_separate(c)) {
      spaced += {' ', c, ' '};
    } else {
      spaced += c;
    }
  }
  spaced = replace_pairs(
      spaced, [](char a, char b) { return !is_digit(a) && is_stop(b); },
      [](std::string& out, char a, char b) {
        out += {a, ' ', b, ' '};
      });
  spaced = replace_pairs(
      spaced, [](char a, char b) { return is_stop(a) && !is_digit(b); },
      [](std::string& out, char a, char b) {
        out += {' ', a, ' ', b};
      });
  spaced = replace_pairs(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; },
      [](std::string& out, char a, char b) {
        out += {a, ' ', b, ' '};
      });
  const auto words = split_words(spaced);
  return {words.begin(), words.end()};
}

BleuScore bleu(const std::vector<std::string>& hypotheses, const std::vector<std::vector<std::string>>& references,
               const BleuOptions& options) {
  if (hypotheses.empty() || hypotheses.size() != references.size()) {
    throw InvalidArgument("bleu: needs at least one hypothesis and as many lists of references, got {} and {}",
                          hypotheses.size(), references.size());
  }
  BleuScore score;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    if (references[i].empty()) throw InvalidArgument("bleu: sentence {} has no reference", i);
    add_sentence(hypotheses[i], references[i], options, score);
  }
  finish(score);
  return score;
}

}  // namespace tessera::data
