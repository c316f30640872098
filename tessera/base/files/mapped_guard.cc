#include "tessera/base/files/mapped_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {

// A signal handler may take no lock and free nothing: slots are a list that only grows, and are used again.
struct MappedGuard::Slot {
  std::atomic<uintptr_t> begin = 0;
  std::atomic<uintptr_t> end = 0;  // 0: guards nothing
  std::atomic<bool> was_cut = false;
  std::atomic<bool> is_taken = false;
  Slot* next = nullptr;
};

namespace {

using Slot = MappedGuard::Slot;

std::atomic<Slot*> slots = nullptr;
struct sigaction previous_action {};
uintptr_t page_bytes = 0;

// Puts zeros in the place of the rest of the mapping. False when the address is in no guarded one.
bool repair(uintptr_t address) {
  uintptr_t last = 0;
  for (Slot* slot = slots; slot != nullptr; slot = slot->next) {
    const uintptr_t end = slot->end;
    if (address < slot->begin || address >= end) continue;
    slot->was_cut = true;
    last = end > last ? end : last;
  }
  if (last == 0) return false;
  const uintptr_t from = address / page_bytes * page_bytes;
  const uintptr_t to = (last + page_bytes - 1) / page_bytes * page_bytes;
  void* const at = reinterpret_cast<void*>(from);  // NOLINT(performance-no-int-to-ptr)
  return ::mmap(at, to - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool is_repaired = repair(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = error;
  if (is_repaired) return;
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) return previous_action.sa_sigaction(signal, info, context);
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    return previous_action.sa_handler(signal);
  }
  ::sigaction(SIGBUS, &previous_action, nullptr);  // the access is made again, and ends the process
}

void install_handler() {
  page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  check(::sigaction(SIGBUS, &action, &previous_action) == 0, "no handler for SIGBUS");
}

Slot* take_slot() {
  for (Slot* slot = slots; slot != nullptr; slot = slot->next) {
    if (!slot->is_taken.exchange(true)) return slot;
  }
  auto* made = new Slot;  // never freed: a handler may look at it
  made->is_taken = true;
  made->next = slots;
  while (!slots.compare_exchange_weak(made->next, made)) {
  }
  return made;
}

}  // namespace

MappedGuard::MappedGuard(std::span<const std::byte> bytes, std::string path) : path_(std::move(path)) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  slot_ = take_slot();
  slot_->was_cut = false;
  slot_->begin = reinterpret_cast<uintptr_t>(bytes.data());
  slot_->end = bytes.empty() ? 0 : slot_->begin + bytes.size();
}

MappedGuard::~MappedGuard() {
  slot_->end = 0;
  slot_->is_taken = false;
}

void MappedGuard::require_whole() const {
  if (slot_->was_cut) throw IoError("{}: became shorter while it was read, or the disk cannot give all of it", path_);
}

}  // namespace tessera
