// A made-up language and its translation into another: for demonstrations and tests that a model can pass in minutes.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/files/file_system.h"

namespace tessera::data {

struct SyntheticTranslationOptions {
  int64_t train_pairs = 4000;  // at least 1
  int64_t test_pairs = 200;    // at least 1
  uint64_t seed = 0;
};

// Writes train.source.sgm, train.target.sgm, test.source.sgm and test.target.sgm into `directory`, which is made when
// missing; files of these names are replaced. A sentence has a subject, a verb, an object and sometimes an adverb, the
// nouns an article and sometimes adjectives. The translation has other words, one for each noun, adjective, verb and
// adverb; its adjectives follow their noun in reverse, the verb comes last and ends as its subject's number says, the
// adverb comes first, and articles agree with their noun's gender. A test sentence is none of the training's. Equal
// options give equal bytes on every machine. Throws InvalidArgument for too few or too many pairs, IoError when a file
// cannot be written.
void write_synthetic_translation(FileSystem& files, const std::string& directory,
                                 const SyntheticTranslationOptions& options = {});

}  // namespace tessera::data
