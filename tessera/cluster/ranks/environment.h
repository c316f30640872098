// What launcher and ranks share beside the variables that launch.h reads; see launch.h for the ranks' side.
#pragma once

#include <fcntl.h>

#include <map>
#include <string>
#include <vector>

namespace tessera::cluster {

// What keeps the memory with a job's secret as it is.
inline constexpr int kSecretSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// This process's environment as NAME=VALUE, with `settings` in place of what it says and `defaults` where it says
// nothing; without the variables of a job that this process itself is a rank of.
std::vector<std::string> child_environment(const std::map<std::string, std::string>& settings,
                                           const std::map<std::string, std::string>& defaults);

// Warns once of the variables of this process that begin with TESSERA_ and that nobody reads, with the names that were
// meant (variable_names.h). A rank leaves that to its launcher, and to rank 0.
void warn_of_unknown_variables();

// Warns once where this process, which is a job of one rank, has been started amid several by what starts ranks: in the
// shell of a job of Slurm that has several tasks, without srun, by the mpiexec of another MPI than Open MPI, or by
// torchrun.
void warn_if_alone_among_tasks();

// What a launcher is told of which srun or mpirun has started several, each to start a job of its own; "" where they
// have not, and to all of them but the first.
std::string describe_other_launchers();

// The file that running `name` would start. Throws InvalidArgument naming it.
std::string find_program(const std::string& name);

}  // namespace tessera::cluster
