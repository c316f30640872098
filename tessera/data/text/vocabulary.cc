#include "tessera/data/text/vocabulary.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/printable.h"
#include "tessera/data/text/unicode.h"

namespace tessera::data {
namespace {

constexpr size_t kMinSpecial = 3;
constexpr size_t kMaxSpecial = 4;

bool is_one_word(std::string_view text) {
  const auto words = split_words(text);
  return words.size() == 1 && words[0].size() == text.size();
}

void check_options(const VocabularyOptions& options) {
  const auto& special = options.special_words;
  if (special.size() < kMinSpecial || special.size() > kMaxSpecial) {
    throw InvalidArgument("vocabulary: special_words must be unknown, padding, end and, if wanted, begin; got {} words",
                          special.size());
  }
  for (size_t i = 0; i < special.size(); ++i) {
    if (!is_one_word(special[i]) || std::count(special.begin(), special.end(), special[i]) > 1) {
      throw InvalidArgument("vocabulary: special_words must be different words, got \"{}\"", printable(special[i]));
    }
  }
  if (options.max_size != 0 && options.max_size < static_cast<int64_t>(special.size())) {
    throw InvalidArgument("vocabulary: max_size must be 0 or at least {}, the special words, got {}", special.size(),
                          options.max_size);
  }
  if (options.min_count < 1) {
    throw InvalidArgument("vocabulary: min_count must be at least 1, got {}", options.min_count);
  }
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> words, size_t num_special)
    : words_(std::move(words)), num_special_(num_special) {
  ids_.reserve(words_.size());
  for (size_t i = num_special_; i < words_.size(); ++i) ids_.emplace(words_[i], static_cast<int32_t>(i));
}

Vocabulary Vocabulary::build(std::span<const std::string> sentences, const VocabularyOptions& options) {
  check_options(options);
  struct Count {
    std::string_view word;
    int64_t count = 0;
  };
  std::vector<Count> counts;  // in the order in which the words come
  std::unordered_map<std::string_view, size_t> places;
  for (const std::string& sentence : sentences) {
    for (const std::string_view word : split_words(sentence)) {
      const auto [place, is_new] = places.emplace(word, counts.size());
      if (is_new) counts.push_back({word});
      ++counts[place->second].count;
    }
  }
  std::stable_sort(counts.begin(), counts.end(), [](const Count& a, const Count& b) { return a.count > b.count; });
  std::vector<std::string> words = options.special_words;
  const int64_t limit = options.max_size > 0 ? options.max_size : std::numeric_limits<int32_t>::max();
  for (const Count& count : counts) {
    if (static_cast<int64_t>(words.size()) >= limit || count.count < options.min_count) break;
    const auto& special = options.special_words;
    if (std::find(special.begin(), special.end(), count.word) == special.end()) words.emplace_back(count.word);
  }
  return {std::move(words), options.special_words.size()};
}

Vocabulary Vocabulary::parse(std::string_view text, std::string_view file, const VocabularyOptions& options) {
  check_options(options);
  const auto& special = options.special_words;
  std::vector<std::string> words;
  std::unordered_map<std::string_view, int64_t> lines;
  for (const std::string_view line : text_lines(text)) {
    const auto number = static_cast<int64_t>(words.size()) + 1;
    require_utf8(line, file, number);
    if (!is_one_word(line)) {
      throw InvalidArgument("vocabulary \"{}\": line {}: must be one word without white space, got \"{}\"",
                            printable(file), number, printable(line.substr(0, 60)));
    }
    if (words.size() < special.size() && line != special[words.size()]) {
      throw InvalidArgument(
          "vocabulary \"{}\": line {}: must be the special word \"{}\", got \"{}\"; name the file's own special words",
          printable(file), number, printable(special[words.size()]), printable(line.substr(0, 60)));
    }
    const auto [earlier, is_new] = lines.emplace(line, number);
    if (!is_new) {
      throw InvalidArgument("vocabulary \"{}\": line {}: \"{}\" is also on line {}", printable(file), number,
                            printable(line.substr(0, 60)), earlier->second);
    }
    words.emplace_back(line);
  }
  if (words.size() < special.size()) {
    throw InvalidArgument("vocabulary \"{}\": must begin with the {} special words, has {} lines", printable(file),
                          special.size(), words.size());
  }
  if (options.max_size > 0 && static_cast<int64_t>(words.size()) > options.max_size) {
    throw InvalidArgument("vocabulary \"{}\": has {} words; at most {} may be", printable(file), words.size(),
                          options.max_size);
  }
  return {std::move(words), special.size()};
}

Vocabulary Vocabulary::read(FileSystem& files, const std::string& path, const VocabularyOptions& options) {
  constexpr TextKind kKind{
      .name = "vocabulary", .max_bytes = int64_t{256} << 20, .remedy = "name a file with one word a line"};
  return parse(read_text_file(files, path, kKind), path, options);
}

const std::string& Vocabulary::word(int64_t id) const {
  if (id < 0 || id >= size()) {
    throw InvalidArgument("vocabulary: id must be in [0, {}), got {}", size(), id);
  }
  return words_[static_cast<size_t>(id)];
}

int32_t Vocabulary::id(std::string_view word) const {
  const auto found = ids_.find(std::string(word));
  return found == ids_.end() ? kUnknown : found->second;
}

std::vector<int32_t> Vocabulary::ids(std::string_view sentence) const {
  std::vector<int32_t> ids;
  for (const std::string_view word : split_words(sentence)) ids.push_back(id(word));
  return ids;
}

std::string Vocabulary::sentence(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    const std::string& known = word(id);
    if (id == kEnd) break;
    if (id != kUnknown && id < static_cast<int32_t>(num_special_)) continue;
    if (!text.empty()) text += ' ';
    text += known;
  }
  return text;
}

std::string Vocabulary::to_text() const {
  std::string text;
  for (const std::string& word : words_) text += word + "\n";
  return text;
}

void Vocabulary::write(FileSystem& files, const std::string& path) const { files.write_atomically(path, to_text()); }

bool Vocabulary::operator==(const Vocabulary& other) const {
  return words_ == other.words_ && num_special_ == other.num_special_;
}

}  // namespace tessera::data
