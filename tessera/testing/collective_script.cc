#include "tessera/testing/collective_script.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tessera/base/files/crc32c.h"

namespace tessera {
namespace {

using comm::Communicator;
using comm::ReduceOp;

class Script {
 public:
  explicit Script(int world_rank) : state_(static_cast<uint64_t>(world_rank) * 0x9E3779B97F4A7C15U + 1) {}

  void run_every_type(Communicator& group) {
    for (const DType dtype : {DType::kF64, DType::kF16, DType::kI32, DType::kI64, DType::kU8, DType::kBool}) {
      for (const int64_t count : {1, 40'000}) run_sizes(group, dtype, count);
    }
    run_sizes(group, DType::kF32, 1'000'003);  // 4 MB: many rounds of every staging buffer
    run(group);
  }

  void run(Communicator& group) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t count : {0, 1, 1000, 40'000}) run_sizes(group, dtype, count);
    }
    group.barrier("script");
  }

  // All data of all ranks where peers can read it; then that of one rank only; then memory that was released and made
  // again.
  void run_in_communication_memory(cluster::Context& context) {
    constexpr int64_t kCount = 1'500'001;
    for (const bool is_everywhere : {true, false, true}) {
      const std::shared_ptr<void> memory = context.allocate_communication_memory(kCount * 4 + 64);
      std::vector<std::byte> data = values(kCount, DType::kF32);
      auto* place = static_cast<std::byte*>(memory.get()) + 64;
      std::copy(data.begin(), data.end(), place);
      const bool is_shared = is_everywhere || context.rank() == 0;
      context.world().all_reduce(is_shared ? place : data.data(), kCount, DType::kF32, ReduceOp::kSum, "in place");
      if (is_shared) std::copy(place, place + data.size(), data.begin());
      note(data);
      context.world().broadcast(place, kCount, DType::kF32, context.size() - 1, "in place");
      note({place, place + data.size()});
    }
  }

  uint64_t hash() const { return hash_; }

 private:
  void run_sizes(Communicator& group, DType dtype, int64_t count) {
    const auto element = static_cast<int64_t>(size_bytes(dtype));
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd}) {
      if (dtype == DType::kBool && op == ReduceOp::kSum) continue;
      std::vector<std::byte> data = values(count, dtype);
      group.all_reduce(data.data(), count, dtype, op, "script");
      note(data);
    }
    std::vector<int64_t> counts;
    for (int r = 0; r < group.size(); ++r) counts.push_back(r % 3 == 1 ? 0 : count / group.size() + r);
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t mine = counts[static_cast<size_t>(group.rank())];
    {
      const std::vector<std::byte> in = values(mine, dtype);
      std::vector<std::byte> out(static_cast<size_t>(total * element));
      group.all_gather(in.data(), out.data(), counts, dtype, "script");
      note(out);
    }
    {
      const std::vector<std::byte> in = values(total, dtype);
      std::vector<std::byte> out(static_cast<size_t>(mine * element));
      group.reduce_scatter(in.data(), out.data(), counts, dtype, ReduceOp::kMax, "script");
      note(out);
    }
    for (int root = 0; root < group.size(); ++root) {
      std::vector<std::byte> data = values(count, dtype);
      group.broadcast(data.data(), count, dtype, root, "script");
      note(data);
    }
    {
      std::vector<int64_t> in_counts, out_counts;
      for (int p = 0; p < group.size(); ++p) {
        in_counts.push_back((group.rank() * 3 + p) % 4 * count / 4);
        out_counts.push_back((p * 3 + group.rank()) % 4 * count / 4);
      }
      const std::vector<std::byte> in = values(std::accumulate(in_counts.begin(), in_counts.end(), int64_t{0}), dtype);
      std::vector<std::byte> out(
          static_cast<size_t>(std::accumulate(out_counts.begin(), out_counts.end(), int64_t{0}) * element));
      group.all_to_all(in.data(), in_counts, out.data(), out_counts, dtype, "script");
      note(out);
    }
    if (group.size() > 1) {
      // Round the ring, in an order that does not deadlock.
      const int next = (group.rank() + 1) % group.size();
      const int previous = (group.rank() + group.size() - 1) % group.size();
      const std::vector<std::byte> out = values(count, dtype);
      std::vector<std::byte> in(out.size());
      if (group.rank() == 0) {
        group.send(out.data(), count, dtype, next, "send");
        group.receive(in.data(), count, dtype, previous, "receive");
      } else {
        group.receive(in.data(), count, dtype, previous, "receive");
        group.send(out.data(), count, dtype, next, "send");
      }
      note(in);
    }
  }

  // Values whose sums depend on the order of addition.
  std::vector<std::byte> values(int64_t count, DType dtype) {
    std::vector<std::byte> bytes(static_cast<size_t>(count) * size_bytes(dtype));
    dispatch_dtype(dtype, "script", [&](auto zero) {
      using T = decltype(zero);
      auto* out = reinterpret_cast<T*>(bytes.data());
      for (int64_t i = 0; i < count; ++i) {
        state_ = state_ * 6364136223846793005U + 1442695040888963407U;
        const auto word = static_cast<uint32_t>(state_ >> 33);
        if constexpr (std::is_same_v<T, bool>) {
          out[i] = word % 3 == 0;
        } else if constexpr (std::is_integral_v<T>) {
          out[i] = static_cast<T>(word % 251);
        } else {
          out[i] = static_cast<T>(static_cast<float>(word) / 1073741824.0F - 1.0F);
        }
      }
    });
    return bytes;
  }

  void note(const std::vector<std::byte>& bytes) { hash_ = crc32c(bytes, static_cast<uint32_t>(hash_)); }

  uint64_t state_;
  uint64_t hash_ = 0;
};

}  // namespace

uint64_t run_collective_script(cluster::Context& context) {
  Script script(context.rank());
  script.run_every_type(context.world());
  script.run_in_communication_memory(context);
  std::vector<int> even, reversed;
  for (int r = 0; r < context.size(); r += 2) even.push_back(r);
  for (int r = context.size() - 1; r >= 0; --r) reversed.push_back(r);
  if (Communicator* group = context.create_group("even", even)) script.run(*group);
  script.run(*context.create_group("reversed", reversed));
  context.destroy_group("even");
  auto hash = static_cast<int64_t>(script.hash() * static_cast<uint64_t>(2 * context.rank() + 1));
  context.world().all_reduce(&hash, 1, DType::kI64, ReduceOp::kSum, "checksum");
  return static_cast<uint64_t>(hash);
}

}  // namespace tessera
