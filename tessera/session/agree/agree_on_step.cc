#include "tessera/session/agree/agree_on_step.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/random.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::session {
namespace {

constexpr const char* kComparingSteps = "comparing what the ranks give to a step";

// "rank 3", "ranks 0, 2".
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  constexpr size_t kNamed = 8;
  const size_t named = std::min(ranks.size(), kNamed);
  const auto text =
      fmt::format("ranks {}", fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (named == ranks.size()) return text;
  return fmt::format("{} and {} more", text, ranks.size() - named);
}

// "rank 0 gives f32[4,8]; ranks 1, 2 give f32[3,8]".
std::string all_givers_text(const comm::Communicator& group, const std::vector<std::string>& given) {
  std::vector<std::pair<std::string, std::vector<int>>> ranks_of;
  for (size_t i = 0; i < given.size(); ++i) {
    auto known = std::ranges::find_if(ranks_of, [&](const auto& entry) { return entry.first == given[i]; });
    if (known == ranks_of.end()) known = ranks_of.insert(ranks_of.end(), {given[i], {}});
    known->second.push_back(group.ranks()[i]);
  }
  std::string text;
  for (const auto& [what, ranks] : ranks_of) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : "; ", ranks_text(ranks), ranks.size() == 1 ? "gives" : "give",
                        what.empty() ? "nothing" : what);
  }
  return text;
}

[[noreturn]] void refuse_other_columns(comm::Communicator& group, const std::string& step, const std::string& given) {
  throw InvalidArgument(
      "{}: the ranks make it together, so each must give as many rows as the others, in the same columns: {}; leave "
      "out the short batch at the end of an epoch (drop_remainder), or give all ranks as many rows of it",
      step, all_givers_text(group, session::gather_texts(group, given, kComparingSteps)));
}

int64_t checksum_of(std::span<const TensorView> batch) {
  uint32_t checksum = 0;
  for (const TensorView& column : batch) {
    if (column.num_elements() == 0) continue;
    const Tensor copy = column.is_dense() ? Tensor() : Tensor::copy_of(column);
    const void* data = column.is_dense() ? column.data : copy.view().data;
    checksum = crc32c({static_cast<const std::byte*>(data), static_cast<size_t>(column.size_bytes())}, checksum);
  }
  return checksum;
}

// Whether all ranks give the same; each of the numbers becomes what it is at most on any.
bool give_the_same(comm::Communicator& group, const std::string& given, std::span<int64_t> numbers) {
  std::array<int64_t, 8> most{};
  check(numbers.size() + 2 <= most.size(), "more numbers than are compared in one all_reduce");
  // The largest of the complements is the complement of the smallest.
  most[0] = static_cast<int64_t>(hash_name(given));
  most[1] = ~most[0];
  std::ranges::copy(numbers, most.begin() + 2);
  group.all_reduce(most.data(), std::ssize(numbers) + 2, DType::kI64, comm::ReduceOp::kMax, kComparingSteps);
  std::copy_n(most.begin() + 2, numbers.size(), numbers.begin());
  return most[0] == ~most[1];
}

}  // namespace

void agree_on_step(comm::Communicator& group, const std::string& step, const std::string& given,
                   std::span<int64_t> numbers) {
  if (group.size() == 1 || give_the_same(group, given, numbers)) return;
  refuse_other_columns(group, step, given);
}

void agree_on_batch(comm::Communicator& group, FunctionRef<std::string()> step, const std::string& given,
                    std::span<const TensorView> batch) {
  if (group.size() == 1) return;
  const int64_t rows = checksum_of(batch);
  std::array<int64_t, 2> most = {rows, ~rows};
  if (!give_the_same(group, given, most)) refuse_other_columns(group, step(), given);
  if (most[0] == ~most[1]) return;
  const auto all = session::gather_texts(group, std::to_string(rows), kComparingSteps);
  std::vector<int> others;
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i] != all[0]) others.push_back(group.ranks()[i]);
  }
  throw InvalidArgument(
      "{}: the rows of {} are not rank {}'s, though each rank takes its part of one batch, which all must give as a "
      "whole; give every rank the same rows in the same order, what is random in them from one seed",
      step(), ranks_text(others), group.ranks()[0]);
}

}  // namespace tessera::session
