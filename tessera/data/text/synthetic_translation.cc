#include "tessera/data/text/synthetic_translation.h"

#include <array>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/data/text/sentence_pairs.h"

namespace tessera::data {
namespace {

// There are far more sentences than that.
constexpr int64_t kMaxPairs = 1'000'000;

struct Noun {
  const char* word;
  const char* translated;
  bool is_feminine;
};
struct Word {
  const char* word;
  const char* translated;
};

constexpr std::array<Noun, 12> kNouns{{{"dolan", "mirto", false},
                                       {"fesk", "arula", true},
                                       {"garit", "benso", false},
                                       {"hulm", "cavira", true},
                                       {"jorst", "delmo", false},
                                       {"kelip", "esira", true},
                                       {"lomba", "fargo", false},
                                       {"nerk", "golina", true},
                                       {"oster", "hilmo", false},
                                       {"pranl", "ivesa", true},
                                       {"quilt", "jorvo", false},
                                       {"rasp", "kelina", true}}};
constexpr std::array<Word, 8> kAdjectives{{{"bim", "alto"},
                                           {"cor", "breve"},
                                           {"dax", "claro"},
                                           {"elk", "denso"},
                                           {"fip", "esto"},
                                           {"gol", "fino"},
                                           {"hep", "grave"},
                                           {"ilt", "hondo"}}};
constexpr std::array<Word, 8> kVerbs{{{"stagt", "port"},
                                      {"treft", "mir"},
                                      {"ulmet", "cant"},
                                      {"vinst", "lev"},
                                      {"wolkt", "sent"},
                                      {"yarmt", "tir"},
                                      {"zelkt", "vol"},
                                      {"brunt", "crei"}}};
constexpr std::array<Word, 4> kAdverbs{{{"nau", "oggi"}, {"ofte", "spesso"}, {"selt", "raro"}, {"immar", "sempre"}}};

// The draws of one sentence, in order.
class Dice {
 public:
  explicit Dice(const RandomStream& stream) : stream_(stream) {}
  template <typename T, size_t n>
  const T& of(const std::array<T, n>& choices) {
    return choices[static_cast<size_t>(below(n))];
  }
  int64_t below(int64_t n) { return random_below(stream_, next_++, n); }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

void append(std::string& sentence, const std::string& word) {
  if (!sentence.empty()) sentence += ' ';
  sentence += word;
}

// A noun with its article and adjectives.
struct Phrase {
  std::string source, target;
};

Phrase noun_phrase(Dice& dice, bool is_plural) {
  const Noun& noun = dice.of(kNouns);
  Phrase phrase{is_plural ? "sem" : "om",
                is_plural ? (noun.is_feminine ? "les" : "los") : (noun.is_feminine ? "la" : "lo")};
  std::string adjectives;
  for (int64_t count = dice.below(3); count > 0; --count) {
    const Word& adjective = dice.of(kAdjectives);
    append(phrase.source, adjective.word);
    adjectives = std::string(" ") + adjective.translated + adjectives;
  }
  append(phrase.source, noun.word);
  append(phrase.target, noun.translated + adjectives);
  return phrase;
}

SentencePair sentence_pair(const RandomStream& stream) {
  Dice dice(stream);
  const bool is_plural = dice.below(2) == 1;
  const Phrase subject = noun_phrase(dice, is_plural);
  const Word& verb = dice.of(kVerbs);
  const Phrase object = noun_phrase(dice, dice.below(2) == 1);
  SentencePair pair{fmt::format("{} {} {}", subject.source, verb.word, object.source),
                    fmt::format("{} {} {}{}", subject.target, object.target, verb.translated, is_plural ? "en" : "a")};
  if (dice.below(2) == 1) {
    const Word& adverb = dice.of(kAdverbs);
    append(pair.source, adverb.word);
    pair.target = adverb.translated + (" " + pair.target);
  }
  return pair;
}

// Pairs whose source is not in `known`, which it is in afterwards.
std::vector<SentencePair> new_pairs(const char* name, uint64_t seed, int64_t count, std::set<std::string>& known) {
  const uint64_t stream = hash_name(std::string("data.synthetic_translation.") + name);
  std::vector<SentencePair> pairs;
  for (uint64_t draw = 0; std::ssize(pairs) < count; ++draw) {
    auto pair = sentence_pair({seed, stream, draw});
    if (known.insert(pair.source).second) pairs.push_back(std::move(pair));
  }
  return pairs;
}

std::string segments(const std::vector<SentencePair>& pairs, std::string SentencePair::*side, const char* language) {
  std::string text =
      fmt::format("<refset trglang=\"{}\" setid=\"synthetic\" srclang=\"any\">\n<doc docid=\"0\">\n", language);
  for (size_t i = 0; i < pairs.size(); ++i) text += fmt::format("<seg id=\"{}\">{}</seg>\n", i + 1, pairs[i].*side);
  return text + "</doc>\n</refset>\n";
}

}  // namespace

void write_synthetic_translation(FileSystem& files, const std::string& directory,
                                 const SyntheticTranslationOptions& options) {
  if (options.train_pairs < 1 || options.test_pairs < 1 || options.train_pairs > kMaxPairs ||
      options.test_pairs > kMaxPairs) {
    throw InvalidArgument("synthetic translation: needs 1 to {} training and test pairs, got {} and {}", kMaxPairs,
                          options.train_pairs, options.test_pairs);
  }
  files.create_directories(directory);
  std::set<std::string> known;
  // The test comes first, so that it does not depend on how much there is to train on.
  for (const auto& [name, count] : {std::pair("test", options.test_pairs), std::pair("train", options.train_pairs)}) {
    const auto pairs = new_pairs(name, options.seed, count, known);
    files.write_atomically(join_path(directory, fmt::format("{}.source.sgm", name)),
                           segments(pairs, &SentencePair::source, "aa"));
    files.write_atomically(join_path(directory, fmt::format("{}.target.sgm", name)),
                           segments(pairs, &SentencePair::target, "bb"));
  }
}

}  // namespace tessera::data
