// StarterWatch: ends a rank whose mpirun or srun has been killed. Those that they have started would train on and save
// with nobody who waits for them, beside a job that was started in their place.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cluster/launcher/process_tree.h"

namespace tessera::cluster {

// The process of mpirun or srun on this host that has started another one, and those between the two.
struct Starter {
  pid_t pid = 0;
  std::string name;
  std::vector<pid_t> between;  // scripts, limits and tracers, the nearest to the rank first

  bool operator==(const Starter&) const = default;
};

// The nearest ancestor that is mpirun, a daemon of Open MPI's or Slurm's: from `parent` on, by `find`, which is
// find_process() but in tests. nullopt where there is none, or it cannot be seen, as from a container.
std::optional<Starter> find_starter(pid_t parent,
                                    const std::function<std::optional<ProcessEntry>(pid_t)>& find = find_process);

class StarterWatch {
 public:
  // Calls `ended` with the starter's name, from a thread of its own, when the starter of this process has ended, and
  // all between the two are there. A process between them that ends first has let this one go: it is no longer the
  // starter's, and goes on. Where no starter is found, or the system has no room for a thread, nobody watches.
  explicit StarterWatch(std::function<void(const std::string& name)> ended);
  // Returns when `ended` is not being called and will not be.
  ~StarterWatch();
  StarterWatch(const StarterWatch&) = delete;
  StarterWatch& operator=(const StarterWatch&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Ends this process, which is `rank`, with exit code 1 and a line in its log as soon as its starter has ended, as long
// as what is returned lives.
std::shared_ptr<void> end_with_starter(int rank);

}  // namespace tessera::cluster
