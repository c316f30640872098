// A data set of sentences and their translations, as rows of token ids that a Transformer learns from.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/data/dataset.h"
#include "tessera/data/text/sentence_pairs.h"
#include "tessera/data/text/vocabulary.h"

namespace tessera::data {

enum class TranslationForm {
  // source: w1 ... wm EOT PAD ...; target: BOT v1 ... vn PAD ...; label: v1 ... vn EOT PAD ... The special words of
  // both vocabularies mean the same. Pairs that do not fit are left out, or cut where TranslationOptions says so.
  kWhole,
  // Tutorial 004's: only pairs whose source has more than source_length + 1 words. source: its first words; target: the
  // first words of the translation, padded; label: target without its first word, then EOT. No word begins a
  // sentence: what is trained so goes on from a first word that it is given.
  kTutorial,
};

struct TranslationOptions {
  int64_t source_length = 0;  // s, tokens of a row
  int64_t target_length = 0;  // t
  TranslationForm form = TranslationForm::kWhole;
  bool cut_long = false;  // kWhole: a sentence that does not fit is cut, and has no end then
  // These are as in SourceOptions; the order is shuffled unless told otherwise.
  int64_t num_samples = 0;
  bool shuffle = true;
  int64_t num_shards = 1;
  int64_t shard_id = 0;
  uint64_t seed = 0;
};

// Columns source i32[s], target i32[t] and label i32[t]. Where a target is padding, its label does not count: that is
// what nn::translator() makes its masks of. Throws InvalidArgument for lengths below 1, for kWhole with a target
// vocabulary without a begin, and where no pair fits.
Dataset translation(const std::vector<SentencePair>& pairs, const Vocabulary& source, const Vocabulary& target,
                    const TranslationOptions& options);

// The row of a sentence as kWhole has it: i32[n,length] of n sentences, those that are too long cut.
Tensor source_rows(const std::vector<std::string>& sentences, const Vocabulary& vocabulary, int64_t length);

}  // namespace tessera::data
