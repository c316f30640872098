#include "tessera/session/message_channel.h"

#include <functional>
#include <utility>

namespace tessera::session {
namespace {

// Memory of the host for these values, which they are moved to.
std::shared_ptr<std::byte> move_to_host(std::vector<TensorView>& values, Device& device) {
  int64_t bytes = 0;
  const auto take = [&](const TensorView& v) { return std::exchange(bytes, bytes + (v.size_bytes() + 63) / 64 * 64); };
  std::vector<int64_t> offsets;
  for (const auto& v : values) offsets.push_back(take(v));
  auto memory = device.allocate_on_host(bytes);
  for (size_t i = 0; i < values.size(); ++i) values[i].data = memory.get() + offsets[i];
  return memory;
}

}  // namespace

MessageChannel make_message_channel(comm::Communicator& pair, bool sends,
                                    const std::vector<std::vector<TensorView>>& by_slot, Device* device, int rank,
                                    const std::string& who) {
  MessageChannel channel;
  channel.lane = std::make_unique<executor::CommLane>(rank);
  if (device != nullptr) channel.queue = device->make_queue();
  const auto add = [&channel](std::function<void()> task) {
    channel.tasks.push_back(std::make_shared<const std::function<void()>>(std::move(task)));
  };
  for (auto values : by_slot) {
    // Messages come from, and go to, memory of the host.
    const auto on_device = values;
    std::shared_ptr<std::byte> staging;
    if (device != nullptr) staging = move_to_host(values, *device);
    std::function<void()> travel;
    if (sends) {
      travel = [&pair, values, who] {
        for (const auto& v : values) pair.send(v.data, v.num_elements(), v.dtype, 1, who);
      };
    } else {
      travel = [&pair, values, who] {
        for (const auto& v : values) pair.receive(v.data, v.num_elements(), v.dtype, 0, who);
      };
    }
    if (device == nullptr) {
      add(std::move(travel));
      continue;
    }
    Event* const may_start = channel.may_start.emplace_back(device->make_event()).get();
    add([=, &queue = *channel.queue, travel = std::move(travel)] {
      may_start->synchronize();
      if (!sends) travel();
      for (size_t i = 0; i < values.size(); ++i) {
        void* const to = sends ? values[i].data : on_device[i].data;
        const void* const from = sends ? on_device[i].data : values[i].data;
        queue.copy(to, from, values[i].size_bytes(), sends ? CopyWay::kToHost : CopyWay::kToDevice);
      }
      queue.synchronize();
      if (sends) travel();
      (void)staging;  // lives as long as the task
    });
  }
  return channel;
}

}  // namespace tessera::session
