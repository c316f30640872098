#include "tessera/data/text/sentence_pairs.h"

#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/printable.h"
#include "tessera/data/text/unicode.h"

namespace tessera::data {
namespace {

// The value of `name="..."` in a tag.
std::optional<std::string> attribute(std::string_view tag, std::string_view name) {
  const std::string key = fmt::format(" {}=\"", name);
  const size_t begin = tag.find(key);
  if (begin == std::string_view::npos) return std::nullopt;
  tag.remove_prefix(begin + key.size());
  const size_t end = tag.find('"');
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(tag.substr(0, end));
}

std::string shortened(std::string_view text) {
  constexpr size_t kShown = 60;
  return printable(text.substr(0, kShown)) + (text.size() > kShown ? "..." : "");
}

// All sentences are held in memory.
std::string read_sentences(FileSystem& files, const std::string& path, const char* name) {
  constexpr int64_t kMaxBytes = int64_t{4} << 30;
  return read_text_file(files, path,
                        {.name = name, .max_bytes = kMaxBytes, .remedy = "train on a part of it, cut at a line's end"});
}

}  // namespace

std::vector<Segment> parse_segments(std::string_view text, std::string_view file) {
  std::vector<Segment> segments;
  std::string document;
  int64_t number = 0;
  for (const std::string_view raw : text_lines(text)) {
    require_utf8(raw, file, ++number);
    const std::string_view line = strip_space(raw);
    const auto refuse = [&](std::string_view what) {
      throw InvalidArgument("segments \"{}\": line {}: {}: {}", printable(file), number, what, shortened(line));
    };
    if (line.starts_with("<doc ")) document = attribute(line.substr(0, line.find('>')), "docid").value_or("");
    if (line.starts_with("</doc>")) document.clear();
    if (!line.starts_with("<seg")) {
      if (line.find("<seg ") != std::string_view::npos) refuse("a segment must stand on a line of its own");
      continue;
    }
    const size_t begin = line.find('>');
    const size_t end = line.find("</seg>");
    if (begin == std::string_view::npos || end == std::string_view::npos || end <= begin) {
      refuse("a segment must begin and end on one line, <seg id=\"1\">text</seg>");
    }
    if (end + std::string_view("</seg>").size() != line.size()) refuse("a segment must stand on a line of its own");
    const auto id = attribute(line.substr(0, begin), "id");
    if (!id) refuse("a segment must have an id, <seg id=\"1\">");
    const std::string_view sentence = strip_space(line.substr(begin + 1, end - begin - 1));
    if (sentence.find('\t') != std::string_view::npos) refuse("a segment must have no tab");
    segments.push_back({document, *id, std::string(sentence), number});
  }
  if (segments.empty()) {
    throw InvalidArgument("segments \"{}\": has no line <seg id=\"1\">text</seg>; it is empty or of another format",
                          printable(file));
  }
  return segments;
}

std::vector<SentencePair> read_segment_pairs(FileSystem& files, const std::string& source_path,
                                             const std::string& target_path) {
  const auto sources = parse_segments(read_sentences(files, source_path, "segments"), source_path);
  const auto targets = parse_segments(read_sentences(files, target_path, "segments"), target_path);
  std::vector<SentencePair> pairs;
  for (size_t i = 0; i < std::min(sources.size(), targets.size()); ++i) {
    const Segment& source = sources[i];
    const Segment& target = targets[i];
    if (source.document != target.document || source.id != target.id) {
      throw InvalidArgument(
          "segments \"{}\" and \"{}\": must have the same documents and ids in one order; line {} is segment {} of "
          "\"{}\", line {} is segment {} of \"{}\"",
          printable(source_path), printable(target_path), source.line, printable(source.id), printable(source.document),
          target.line, printable(target.id), printable(target.document));
    }
    if (!source.text.empty() && !target.text.empty()) pairs.push_back({source.text, target.text});
  }
  if (sources.size() != targets.size()) {
    throw InvalidArgument("segments \"{}\" and \"{}\": must have as many segments, got {} and {}; one is truncated",
                          printable(source_path), printable(target_path), sources.size(), targets.size());
  }
  return pairs;
}

std::vector<SentencePair> parse_sentence_pairs(std::string_view text, std::string_view file) {
  std::vector<SentencePair> pairs;
  int64_t number = 0;
  for (const std::string_view raw : text_lines(text)) {
    require_utf8(raw, file, ++number);
    const std::string_view line = strip_space(raw);
    if (line.empty()) continue;
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos || line.find('\t', tab + 1) != std::string_view::npos) {
      const bool is_side_empty = raw.find('\t') != std::string_view::npos && tab == std::string_view::npos;
      throw InvalidArgument("sentence pairs \"{}\": line {}: must be a sentence, a tab and its translation, got {}",
                            printable(file), number,
                            is_side_empty                   ? "one side only"
                            : tab == std::string_view::npos ? "no tab"
                                                            : "several tabs");
    }
    pairs.push_back({std::string(strip_space(line.substr(0, tab))), std::string(strip_space(line.substr(tab + 1)))});
  }
  if (pairs.empty()) throw InvalidArgument("sentence pairs \"{}\": has no pair", printable(file));
  return pairs;
}

std::vector<SentencePair> read_sentence_pairs(FileSystem& files, const std::string& path) {
  return parse_sentence_pairs(read_sentences(files, path, "sentence pairs"), path);
}

void write_sentence_pairs(FileSystem& files, const std::string& path, const std::vector<SentencePair>& pairs) {
  std::string text;
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (const std::string* sentence : {&pairs[i].source, &pairs[i].target}) {
      if (sentence->empty() || strip_space(*sentence) != *sentence ||
          sentence->find_first_of("\t\r\n") != std::string::npos) {
        throw InvalidArgument(
            "sentence pairs \"{}\": pair {}: a sentence must have text, no white space at its ends, no tab and no end "
            "of a line, got \"{}\"",
            printable(path), i, shortened(*sentence));
      }
    }
    const std::string line = pairs[i].source + "\t" + pairs[i].target;
    require_utf8(line, path, static_cast<int64_t>(i) + 1);
    text += line + "\n";
  }
  files.write_atomically(path, text);
}

}  // namespace tessera::data
