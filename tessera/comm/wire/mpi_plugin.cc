// The plugin itself: the only file that knows MPI.
#include "tessera/comm/wire/mpi_plugin.h"

#include <mpi.h>

#include <cstdio>
#include <mutex>
#include <vector>

namespace {

// MPI's state is one per process, and so is the plugin's: MPI is asked for serialized calls only, which every MPI has.
struct State {
  std::mutex mutex;
  std::vector<MPI_Request> requests;
  std::vector<int64_t> free;
};

State& state() {
  static State* const instance = new State;  // outlives every thread that may still test an operation
  return *instance;
}

int32_t start(int32_t* rank, int32_t* size, char* error, size_t error_bytes) {
  const std::lock_guard lock(state().mutex);
  int is_started = 0;
  MPI_Initialized(&is_started);
  if (is_started == 0) {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
        provided < MPI_THREAD_SERIALIZED) {
      std::snprintf(error, error_bytes, "MPI does not start, or not for several threads (level %d)", provided);
      return -1;
    }
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int own = 0;
  int all = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  *rank = own;
  *size = all;
  return 0;
}

template <typename F>
int64_t begin(F&& post) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.free.empty()) {
    s.free.push_back(static_cast<int64_t>(s.requests.size()));
    s.requests.push_back(MPI_REQUEST_NULL);
  }
  const int64_t number = s.free.back();
  if (post(&s.requests[static_cast<size_t>(number)]) != MPI_SUCCESS) return -1;
  s.free.pop_back();
  return number;
}

int64_t send(const void* data, int64_t bytes, int32_t peer, int32_t tag) {
  return begin([&](MPI_Request* request) {
    return MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD, request);
  });
}

int64_t receive(void* data, int64_t bytes, int32_t peer, int32_t tag) {
  return begin([&](MPI_Request* request) {
    return MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD, request);
  });
}

int32_t test(int64_t operation) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  int is_done = 0;
  if (MPI_Test(&s.requests[static_cast<size_t>(operation)], &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return -1;
  if (is_done != 0) s.free.push_back(operation);
  return is_done != 0 ? 1 : 0;
}

void finish() {
  const std::lock_guard lock(state().mutex);
  int is_finished = 0;
  MPI_Finalized(&is_finished);
  if (is_finished == 0) MPI_Finalize();
}

constexpr TesseraMpiPlugin kPlugin = {kTesseraMpiVersion, start, send, receive, test, finish};

}  // namespace

extern "C" const TesseraMpiPlugin* tessera_mpi_plugin() { return &kPlugin; }
