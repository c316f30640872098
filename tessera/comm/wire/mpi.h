// MPI, through a plugin that is loaded when it is asked for: it moves bytes, the collectives are ours.
#pragma once

#include <memory>
#include <string>

#include "tessera/comm/wire/mpi_plugin.h"
#include "tessera/comm/wire/wire.h"

namespace tessera::comm {

// A started MPI.
class Mpi {
 public:
  // Loads the plugin from `directory`, or when that is empty from the folder of this program (or of the library that
  // holds this code) or its sibling lib, and starts MPI. Throws IoError naming the places sought, InvalidArgument when
  // MPI's world is not `size` ranks of which this is `rank`: the program was not started by mpirun.
  Mpi(const std::string& directory, int rank, int size);

  const TesseraMpiPlugin& plugin() const { return *plugin_; }
  // Returns rank 0's text on all ranks. Throws IoError after `timeout_ms`.
  std::string broadcast(const std::string& text, int64_t timeout_ms) const;
  // Ends MPI; every rank must come here. A failed job's ranks cannot and do not: mpirun ends them.
  void finish() const { plugin_->finish(); }

 private:
  const TesseraMpiPlugin* plugin_ = nullptr;
  int rank_;
  int size_;
};

// `job` outlives the wire.
std::shared_ptr<Wire> make_mpi_wire(std::shared_ptr<Mpi> mpi, JobState& job, const WaitOptions& wait);

}  // namespace tessera::comm
