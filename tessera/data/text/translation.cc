#include "tessera/data/text/translation.h"

#include <algorithm>
#include <span>

#include "tessera/base/error.h"
#include "tessera/data/text/unicode.h"

namespace tessera::data {
namespace {

using Ids = std::vector<int32_t>;

// Rows of equal length, one after the other.
struct Rows {
  explicit Rows(int64_t row_length) : length(row_length) {}
  void add(const Ids& row) {
    check_equal(static_cast<int64_t>(row.size()), length, "tokens of a row");
    ids.insert(ids.end(), row.begin(), row.end());
  }
  int64_t size() const { return static_cast<int64_t>(ids.size()) / length; }
  Tensor tensor() const {
    Tensor rows(DType::kI32, {size(), length});
    std::copy(ids.begin(), ids.end(), rows.values<int32_t>().begin());
    return rows;
  }

  int64_t length;
  Ids ids;
};

Ids padded(Ids ids, int64_t length) {
  ids.resize(static_cast<size_t>(length), Vocabulary::kPadding);
  return ids;
}

// With the end after the words.
Ids ended(Ids ids) {
  ids.push_back(Vocabulary::kEnd);
  return ids;
}

struct Columns {
  Rows source, target, label;

  void add_whole(const Ids& words, const Ids& translated, bool cut_long) {
    const bool fits = std::ssize(words) < source.length && std::ssize(translated) < target.length;
    if (!fits && !cut_long) return;
    Ids begun{Vocabulary::kBegin};
    begun.insert(begun.end(), translated.begin(), translated.end());
    source.add(padded(ended(words), source.length));
    target.add(padded(std::move(begun), target.length));
    label.add(padded(ended(translated), target.length));
  }
  void add_tutorial(const Ids& words, const Ids& translated) {
    if (std::ssize(words) <= source.length + 1) return;
    const Ids row = padded(translated, target.length);
    source.add(padded(words, source.length));
    target.add(row);
    label.add(ended(Ids(row.begin() + 1, row.end())));
  }
};

}  // namespace

Dataset translation(const std::vector<SentencePair>& pairs, const Vocabulary& source, const Vocabulary& target,
                    const TranslationOptions& options) {
  if (options.source_length < 1 || options.target_length < 1) {
    throw InvalidArgument("translation: source_length and target_length must be at least 1, got {} and {}",
                          options.source_length, options.target_length);
  }
  const bool is_whole = options.form == TranslationForm::kWhole;
  if (is_whole && !target.has_begin()) {
    throw InvalidArgument(
        "translation: the target's vocabulary must have a word for the beginning of a sentence; give it four special "
        "words, or take tutorial 004's form");
  }
  Columns columns{Rows(options.source_length), Rows(options.target_length), Rows(options.target_length)};
  int64_t longest_source = 0;
  int64_t longest_target = 0;
  for (const SentencePair& pair : pairs) {
    const Ids words = source.ids(pair.source);
    const Ids translated = target.ids(pair.target);
    longest_source = std::max(longest_source, std::ssize(words));
    longest_target = std::max(longest_target, std::ssize(translated));
    if (is_whole) {
      columns.add_whole(words, translated, options.cut_long);
    } else {
      columns.add_tutorial(words, translated);
    }
  }
  if (columns.source.size() == 0) {
    throw InvalidArgument("translation: none of {} pairs {}; the longest source has {} words, the longest target {}",
                          pairs.size(),
                          is_whole ? fmt::format("fits into {} and {} tokens with its end: give more, or cut_long",
                                                 options.source_length, options.target_length)
                                   : fmt::format("has a source of more than {} words: give a smaller source_length",
                                                 options.source_length + 1),
                          longest_source, longest_target);
  }
  return tensors(
      {{"source", columns.source.tensor()}, {"target", columns.target.tensor()}, {"label", columns.label.tensor()}},
      {.num_samples = options.num_samples,
       .shuffle = options.shuffle,
       .num_shards = options.num_shards,
       .shard_id = options.shard_id,
       .seed = options.seed});
}

Tensor source_rows(const std::vector<std::string>& sentences, const Vocabulary& vocabulary, int64_t length) {
  if (length < 1) throw InvalidArgument("source_rows: length must be at least 1, got {}", length);
  Rows rows(length);
  for (const std::string& sentence : sentences) rows.add(padded(ended(vocabulary.ids(sentence)), length));
  return rows.tensor();
}

}  // namespace tessera::data
