// Sentences and their translations: from two files of segments, as WMT hands them out, or from one file with a tab
// between the two, which tutorial 004 makes of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::data {

struct SentencePair {
  std::string source;
  std::string target;
  bool operator==(const SentencePair&) const = default;
};

// A segment of an .sgm file: what stands between <seg id="N"> and </seg>, on one line. Entities (&amp;) stay as they
// are.
struct Segment {
  std::string document;  // the docid of the <doc ...> that it is in; "" outside of any
  std::string id;
  std::string text;
  int64_t line = 0;  // from 1
  bool operator==(const Segment&) const = default;
};

// Throws InvalidArgument naming `file` and the line for bytes that are no UTF-8, a segment without an id or an end, one
// that shares its line, a tab in a segment, and where there is none at all.
std::vector<Segment> parse_segments(std::string_view text, std::string_view file);

// The segments of two files, side by side; where one of them is empty both are left out. Throws InvalidArgument as
// parse_segments() does, and naming both files and lines where the two do not have the same documents and ids in one
// order.
std::vector<SentencePair> read_segment_pairs(FileSystem& files, const std::string& source_path,
                                             const std::string& target_path);

// Pairs from lines "source<tab>target"; white space at the ends of a line and lines without any other text are left
// out. Throws InvalidArgument naming `file` and the line for bytes that are no UTF-8, for a line without a tab or with
// several, and where there is no pair at all.
std::vector<SentencePair> parse_sentence_pairs(std::string_view text, std::string_view file);
std::vector<SentencePair> read_sentence_pairs(FileSystem& files, const std::string& path);
// Writes that form, in place of what `path` was. Throws InvalidArgument for a sentence that such a line cannot hold:
// one that is empty, is no UTF-8 or too long, has white space at an end, NUL, a tab or the end of a line.
void write_sentence_pairs(FileSystem& files, const std::string& path, const std::vector<SentencePair>& pairs);

}  // namespace tessera::data
