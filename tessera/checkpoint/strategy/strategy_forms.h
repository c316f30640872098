// The two forms of a strategy file, and the wire pieces that it shares with the group file. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/files/protobuf_wire.h"
#include "tessera/checkpoint/strategy/strategy_file.h"

namespace tessera::checkpoint {

// Bounds on what a file may claim. The largest known models have some hundred thousand parameters.
inline constexpr size_t kMaxStrategyBytes = size_t{64} << 20;
inline constexpr size_t kMaxStrategyItems = size_t{1} << 20;
inline constexpr size_t kMaxItemNameBytes = 1 << 16;
inline constexpr size_t kMaxStrategyDims = 64;
// Every number of these formats but split shapes and offsets is a 32-bit integer.
inline constexpr int64_t kMaxInt32 = 0x7FFFFFFF;

// Throws InvalidArgument when there is nothing, or more than kMaxStrategyBytes. `what`: "a strategy file".
void check_size(std::string_view bytes, const std::string& path, std::string_view what);
// Opens what may be such a file. One that is larger than any is refused before it is mapped.
std::unique_ptr<ReadableFile> open_strategy(FileSystem& files, const std::string& path, std::string_view what);
// True unless the name is empty, too long or not UTF-8.
bool is_item_name(std::string_view name);

// Neither calls check_strategy.
StrategyFile parse_protobuf_strategy(std::string_view bytes, const std::string& path);
StrategyFile parse_json_strategy(std::string_view text, const std::string& path);

// Sets a field that may occur once.
template <typename T>
void set_once(std::optional<T>& to, T value, const WireCursor& cursor, size_t at, std::string_view what) {
  if (to) cursor.fail(at, "{} is given twice", what);
  to = std::move(value);
}

// A message of a name (field 1) and a message (field 2), as every item of these files is.
struct NamedMessage {
  std::string name;
  WireCursor content;
};
NamedMessage read_named_message(WireCursor cursor, std::string_view what);
// The number of a field whose key was read; in [min, max].
int64_t read_number(WireCursor& cursor, WireKey key, std::string_view what, int64_t min, int64_t max);
// A message of numbers (field 1), packed or not.
std::vector<int64_t> read_numbers(WireCursor cursor, std::string_view what, int64_t min, int64_t max);
// The content of a field whose key was read.
WireCursor read_message(WireCursor& cursor, WireKey key, std::string_view what);

void append_named_message(std::string& to, int field, std::string_view name, std::string_view content);
void append_numbers(std::string& to, int field, const std::vector<int64_t>& numbers);

}  // namespace tessera::checkpoint
