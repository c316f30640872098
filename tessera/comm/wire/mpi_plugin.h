// What the MPI plugin (libtessera_mpi_plugin.so) offers: a table of C functions, so that nothing but the plugin is
// linked to MPI and a program without it starts on a machine that has none. The functions may be called from any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct TesseraMpiPlugin {
  int32_t version;  // kTesseraMpiVersion
  // Starts MPI; gives this process's rank and the size of MPI's world. 0, or -1 with `error` filled.
  int32_t (*start)(int32_t* rank, int32_t* size, char* error, size_t error_bytes);
  // Start an operation; give its number, or -1.
  int64_t (*send)(const void* data, int64_t bytes, int32_t peer, int32_t tag);
  int64_t (*receive)(void* data, int64_t bytes, int32_t peer, int32_t tag);
  // 1: done, the number is free again; 0: not yet; -1: failed.
  int32_t (*test)(int64_t operation);
  // Ends MPI, together with all other ranks.
  void (*finish)();
};

// The plugin's one symbol.
const TesseraMpiPlugin* tessera_mpi_plugin();
}

inline constexpr int32_t kTesseraMpiVersion = 1;
inline constexpr const char* kTesseraMpiFile = "libtessera_mpi_plugin.so";
