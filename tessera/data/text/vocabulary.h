// Vocabulary: the words that a model knows, numbered from 0. The first ones are special: what stands for a word that is
// not known, for no word, for the end of a sentence and, unless it is left out, for its beginning.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::data {

struct VocabularyOptions {
  // These have the ids 0, 1, ...: unknown, padding, end and, as a fourth, begin. The first three are tutorial 004's.
  std::vector<std::string> special_words = {"UNK", "PAD", "EOT", "BOT"};
  int64_t max_size = 0;   // words at most, the special ones included: the most frequent; 0: all
  int64_t min_count = 1;  // words that are rarer are unknown
};

// A Vocabulary is immutable and thread-safe.
class Vocabulary {
 public:
  static constexpr int32_t kUnknown = 0;
  static constexpr int32_t kPadding = 1;
  static constexpr int32_t kEnd = 2;
  static constexpr int32_t kBegin = 3;  // where has_begin()

  // Words of the sentences as split_words() finds them, the most frequent first, of equally frequent ones that first
  // which comes first. A word of the text that is spelled like a special one is unknown. Throws InvalidArgument for
  // options that do not fit.
  static Vocabulary build(std::span<const std::string> sentences, const VocabularyOptions& options = {});
  // One word on each line, the special ones first; a word's id is the number of its line, from 0. Throws
  // InvalidArgument naming `file` and the line for bytes that are no UTF-8, a line that is not one word, a word that is
  // there twice, and where the special words do not stand first.
  static Vocabulary parse(std::string_view text, std::string_view file, const VocabularyOptions& options = {});
  static Vocabulary read(FileSystem& files, const std::string& path, const VocabularyOptions& options = {});

  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  bool has_begin() const { return num_special_ > kBegin; }
  const std::string& word(int64_t id) const;
  // kUnknown for words that are not in it, and for those spelled like a special one.
  int32_t id(std::string_view word) const;
  std::vector<int32_t> ids(std::string_view sentence) const;
  // Words with spaces between them, up to the first end; special words but the unknown one are left out. Throws
  // InvalidArgument for an id outside [0, size()).
  std::string sentence(std::span<const int32_t> ids) const;

  std::string to_text() const;  // as parse() takes it
  void write(FileSystem& files, const std::string& path) const;
  bool operator==(const Vocabulary& other) const;

 private:
  Vocabulary(std::vector<std::string> words, size_t num_special);

  std::vector<std::string> words_;
  size_t num_special_;
  std::unordered_map<std::string, int32_t> ids_;  // but of the special words
};

}  // namespace tessera::data
