// FakeDevice: a device made of the host's memory and threads, for tests that keep host and device apart where there is
// no device. It is as different from the host as a device may be:
// - The addresses that it hands out can be neither read nor written: the host dies by SIGSEGV where it looks. Kernels
//   work in a second mapping of the same memory.
// - A queue has a thread of its own, which runs late: for each piece of work it is drawn whether it runs by itself or
//   not before somebody waits for it. What the host reads without waiting is not there yet, and what it gives away is
//   not read yet.
// - Memory that is new, or has come back, is full of 0xFF: a NaN, an index out of range.
// Its kernels are the CPU's, under names of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "tessera/kernels/backend.h"
#include "tessera/tensor/device.h"

namespace tessera {

class FakeDevice final : public Device {
 public:
  // The seed draws which work is late. All that is reserved on the device has so much memory together.
  explicit FakeDevice(uint64_t seed, int64_t memory_bytes = std::numeric_limits<int64_t>::max());
  ~FakeDevice() override;

  std::string name() const override { return "fake"; }
  std::unique_ptr<Memory> reserve(int64_t capacity_bytes) override;
  std::shared_ptr<std::byte> allocate_on_host(int64_t bytes) override;
  std::unique_ptr<Queue> make_queue() override;
  std::unique_ptr<Event> make_event() override;
  std::unique_ptr<Event> make_timed_event() override;
  std::optional<int64_t> free_bytes() const override;

  // What free_bytes() says from now on; nothing at first.
  void set_free_bytes(std::optional<int64_t> bytes);
  // The memory of the host that allocate_on_host() has given: of all calls so far, and the most of it at one time.
  int64_t allocated_on_host() const;
  int64_t most_on_host() const;

  // Has a queue of a fake device do work that other devices wait for, which is late, but not for ever.
  static void give_for_others(Queue& queue, std::function<void()> work);
  // Where work in that queue finds what has this address outside.
  static std::byte* inside(Queue& queue, const void* address);

  // Pieces of work so far: kernels, copies and fills.
  int64_t num_kernels() const;
  int64_t num_copies() const;
  // How often recorded work was given to a queue.
  int64_t num_replays() const;
  // Those that were given to a queue and are not done yet.
  int64_t num_unfinished() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Has the fast kernels of the CPU, or the plain loops only. Where `communicators` are given, which connect it with
// other fake devices, collectives are done in its queues. All that is given outlives it.
kernels::Backend fake_backend(FakeDevice& device, bool plain_loops = false,
                              DeviceCommunicators* communicators = nullptr);

// The kernels of that backend for requests that `has` lets pass, and its copies: what a poorer device would have. What
// the backend's registries are outlives it.
KernelRegistry some_kernels(const kernels::Backend& backend, const std::function<bool(const KernelRequest&)>& has);

}  // namespace tessera
