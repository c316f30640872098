#include "tessera/checkpoint/strategy/group_file.h"

#include <optional>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/checkpoint/strategy/strategy_forms.h"

namespace tessera::checkpoint {
namespace {

void check_ranks(const std::vector<int64_t>& ranks, const std::string& where, const std::string& what) {
  std::unordered_set<int64_t> seen;
  for (const int64_t rank : ranks) {
    if (rank < 0 || rank > kMaxInt32) {
      throw InvalidArgument("{}: {} has rank {}, ranks are from 0 to {}", where, what, rank, kMaxInt32);
    }
    if (!seen.insert(rank).second) throw InvalidArgument("{}: {} has rank {} twice", where, what, rank);
  }
}

void check_groups(const GroupFile& file, const std::string& where) {
  std::unordered_set<std::string_view> names;
  for (const auto& group : file.groups) {
    if (!is_item_name(group.name)) {
      throw InvalidArgument("{}: the name of a group, of {} bytes, must be UTF-8 of 1 to {} bytes", where,
                            group.name.size(), kMaxItemNameBytes);
    }
    const auto what = fmt::format("the group {}", quoted_name(group.name));
    if (!names.insert(group.name).second) throw InvalidArgument("{}: {} occurs twice", where, what);
    check_ranks(group.ranks, where, what);
  }
  check_ranks(file.restore_ranks, where, "the list of restore ranks");
}

GroupRanks read_group(WireCursor item) {
  auto [name, content] = read_named_message(item, "a group");
  const auto what = fmt::format("a rank of the group {}", quoted_name(name));
  return {std::move(name), read_numbers(content, what, 0, kMaxInt32)};
}

}  // namespace

std::string group_file_to_protobuf(const GroupFile& groups) {
  check_groups(groups, "group file");
  std::string bytes;
  for (const auto& group : groups.groups) {
    std::string ranks;
    for (const int64_t rank : group.ranks) append_number_field(ranks, 1, rank);
    append_named_message(bytes, 1, group.name, ranks);
  }
  append_numbers(bytes, 2, groups.restore_ranks);
  return bytes;
}

GroupFile parse_group_file(std::string_view bytes, const std::string& path) {
  check_size(bytes, path, "a group file");
  GroupFile groups;
  std::optional<std::vector<int64_t>> restore_ranks;
  WireCursor cursor(path, std::as_bytes(std::span(bytes)), 0);
  while (!cursor.done()) {
    const size_t at = cursor.offset();
    const WireKey key = cursor.key();
    if (key.field == 1) {
      groups.groups.push_back(read_group(read_message(cursor, key, "a group")));
      if (groups.groups.size() > kMaxStrategyItems) cursor.fail(at, "more than {} groups", kMaxStrategyItems);
    } else if (key.field == 2) {
      if (restore_ranks) cursor.fail(at, "the list of restore ranks is given twice");
      restore_ranks =
          read_numbers(read_message(cursor, key, "the list of restore ranks"), "a restore rank", 0, kMaxInt32);
    } else {
      cursor.skip(key.wire_type);
    }
  }
  groups.restore_ranks = std::move(restore_ranks).value_or(std::vector<int64_t>{});
  check_groups(groups, path);
  return groups;
}

GroupFile read_group_file(FileSystem& files, const std::string& path) {
  const auto file = open_strategy(files, path, "a group file");
  return parse_guarded(file->bytes(), path, [&](auto bytes) { return parse_group_file(as_text(bytes), path); });
}

void write_group_file(FileSystem& files, const std::string& path, const GroupFile& groups) {
  const auto bytes = group_file_to_protobuf(groups);
  files.create_directories(parent_path(path));
  files.write_atomically(path, bytes, 0600);
}

std::vector<int64_t> restore_group_info_list(FileSystem& files, const std::string& path) {
  return read_group_file(files, path).restore_ranks;
}

}  // namespace tessera::checkpoint
