#include "tessera/session/message_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/tensor/alignment.h"

namespace tessera::session {
namespace {

// Memory of the host for these values, row-major, which they are moved to.
std::shared_ptr<std::byte> move_to_host(std::vector<TensorView>& values, Device& device) {
  int64_t bytes = 0;
  const auto take = [&](const TensorView& v) { return std::exchange(bytes, bytes + aligned(v.size_bytes())); };
  std::vector<int64_t> offsets;
  for (const auto& v : values) offsets.push_back(take(v));
  auto memory = device.allocate_on_host(bytes);
  for (size_t i = 0; i < values.size(); ++i) values[i] = {memory.get() + offsets[i], values[i].type()};
  return memory;
}

// The stretches of a view that lie in one piece, in its order.
std::vector<TensorView> stretches_of(const TensorView& view) {
  int outer = view.shape.ndim();
  int64_t count = 1;
  while (outer > 0 && (view.shape[outer - 1] == 1 || view.strides[outer - 1] == count)) {
    count *= view.shape[--outer];
  }
  std::vector<TensorView> stretches;
  if (view.num_elements() == 0) return stretches;
  std::vector<int64_t> at(static_cast<size_t>(outer), 0);
  const auto element = static_cast<int64_t>(size_bytes(view.dtype));
  for (int64_t i = 0; i < view.num_elements() / count; ++i) {
    int64_t offset = 0;
    for (int dim = 0; dim < outer; ++dim) offset += at[static_cast<size_t>(dim)] * view.strides[dim];
    stretches.emplace_back(static_cast<std::byte*>(view.data) + offset * element, Type{view.dtype, {count}});
    for (int dim = outer; dim-- > 0;) {
      if (++at[static_cast<size_t>(dim)] < view.shape[dim]) break;
      at[static_cast<size_t>(dim)] = 0;
    }
  }
  return stretches;
}

// Between a device's memory and row-major memory of the host.
void copy_stretches(Queue& queue, const TensorView& on_device, const TensorView& on_host, CopyWay way) {
  auto* host = static_cast<std::byte*>(on_host.data);
  for (const auto& stretch : stretches_of(on_device)) {
    const bool leaves = way == CopyWay::kToHost;
    queue.copy(leaves ? host : stretch.data, leaves ? stretch.data : host, stretch.size_bytes(), way);
    host += stretch.size_bytes();
  }
}

using Places = std::vector<TensorView>;

// How many there are: up to the last that is not negative.
template <typename Number>
int64_t count_numbers(const TensorView& numbers) {
  const auto* all = numbers.as<Number>();
  int64_t count = numbers.num_elements();
  while (count > 0 && all[count - 1] < 0) --count;
  return count;
}

int64_t count_rows(const TensorView& numbers) {
  return numbers.dtype == DType::kI32 ? count_numbers<int32_t>(numbers) : count_numbers<int64_t>(numbers);
}

template <typename Number>
void require_rows(const TensorView& numbers, const CountedRows& counted, const comm::Communicator& pair) {
  const auto* all = numbers.as<Number>();
  const auto* end = all + numbers.num_elements();
  const auto* wrong = std::find_if(all, end, [&](Number n) { return n < -1 || n >= counted.num_rows; });
  if (wrong == end) return;
  throw IoError(
      "rank {} sends rank {}, a parameter server, gradients of rows of \"{}\": the number {} at place {} is none of "
      "the table's {} rows. The message is damaged; a job that is started again goes on from its newest checkpoint",
      pair.ranks()[0], pair.ranks()[1], counted.table, *wrong, wrong - all, counted.num_rows);
}

// What travels of the rows; the numbers are there.
TensorView rows_there(const TensorView& rows, const TensorView& numbers) {
  const int64_t capacity = numbers.num_elements();
  const int64_t elements = capacity == 0 ? 0 : rows.num_elements() / capacity * count_rows(numbers);
  return {rows.data, Type{rows.dtype, {elements}}};
}

void receive_rows(comm::Communicator& pair, const Places& values, const CountedRows& counted, const std::string& who) {
  const TensorView& numbers = values[counted.numbers];
  if (numbers.dtype == DType::kI32) {
    require_rows<int32_t>(numbers, counted, pair);
  } else {
    require_rows<int64_t>(numbers, counted, pair);
  }
  const TensorView& rows = values[counted.rows];
  const TensorView there = rows_there(rows, numbers);
  pair.receive(there.data, there.num_elements(), there.dtype, 0, who);
  if (!counted.clears_rest) return;
  const int64_t rest = rows.size_bytes() - there.size_bytes();
  if (rest > 0) std::memset(static_cast<std::byte*>(rows.data) + there.size_bytes(), 0, static_cast<size_t>(rest));
}

void travel(comm::Communicator& pair, bool sends, const Places& values, const std::vector<CountedRows>& counted,
            const std::string& who) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto rows = std::ranges::find(counted, i, &CountedRows::rows);
    const bool is_counted = rows != counted.end();
    if (!sends && is_counted) {
      receive_rows(pair, values, *rows, who);
      continue;
    }
    const TensorView v = is_counted ? rows_there(values[i], values[rows->numbers]) : values[i];
    if (sends) {
      pair.send(v.data, v.num_elements(), v.dtype, 1, who);
    } else {
      pair.receive(v.data, v.num_elements(), v.dtype, 0, who);
    }
  }
}

// From or to where they lie in the host's memory; pieces with gaps by way of dense copies.
std::function<void()> travel_on_host(comm::Communicator& pair, bool sends, const Places& places,
                                     const std::vector<CountedRows>& counted, const std::string& who) {
  Places values = places;
  std::vector<std::pair<TensorView, Tensor>> copies;
  for (auto& v : values) {
    if (v.is_dense() || v.num_elements() == 0) continue;
    copies.emplace_back(v, Tensor(v.type()));
    v = copies.back().second.view();
  }
  return [&pair, sends, values, counted, copies, who] {
    for (const auto& [place, copy] : copies) {
      if (sends) copy_elements(place, copy.view());
    }
    travel(pair, sends, values, counted, who);
    for (const auto& [place, copy] : copies) {
      if (!sends) copy_elements(copy.view(), place);
    }
  };
}

}  // namespace

MessageChannel make_message_channel(comm::Communicator& pair, bool sends, const std::vector<Places>& by_slot,
                                    Device* device, int rank, const std::string& who, const MessageTimes& times,
                                    const std::vector<CountedRows>& counted) {
  MessageChannel channel;
  timeline::SpanName name{.kind = timeline::SpanKind::kMessage, .text = times.way};
  for (const auto& v : by_slot.empty() ? Places{} : by_slot.front()) name.bytes += v.size_bytes();
  name.ranks = pair.ranks();
  name.number = 0;  // the messages of a step are told apart by their order
  const auto timed = std::make_shared<timeline::TimedWork>(
      times.recorder, fmt::format("{} {}", sends ? "sends" : "receives", times.way), name);
  channel.lane = std::make_unique<executor::CommLane>(rank);
  if (device != nullptr) channel.queue = device->make_queue();
  const auto add = [&channel, &timed](std::function<void()> task) {
    channel.tasks.push_back(
        std::make_shared<const std::function<void()>>([timed, task = std::move(task)] { timed->run(task); }));
  };
  for (const auto& places : by_slot) {
    if (device == nullptr) {
      add(travel_on_host(pair, sends, places, counted, who));
      continue;
    }
    // Messages come from, and go to, memory of the host.
    auto values = places;
    const auto staging = move_to_host(values, *device);
    Event* const may_start = channel.may_start.emplace_back(device->make_event()).get();
    add([=, &pair, &queue = *channel.queue] {
      may_start->synchronize();
      if (!sends) travel(pair, sends, values, counted, who);
      for (size_t i = 0; i < values.size(); ++i) {
        copy_stretches(queue, places[i], values[i], sends ? CopyWay::kToHost : CopyWay::kToDevice);
      }
      queue.synchronize();
      if (sends) travel(pair, sends, values, counted, who);
      (void)staging;  // lives as long as the task
    });
  }
  return channel;
}

}  // namespace tessera::session
