// `tessera job`: what a manifest of a job on Kubernetes becomes, the job as processes of this machine, and what
// installs the operator. Manifests are the operator's, which is Python: the command is handed over to its package.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tessera::tools {

// Adds the command to the list of commands.
void add_job_command(CLI::App& app);

// Goes on as the interpreter that PYTHON names, else python3, with these words for the package tessera_operator: the
// interpreter's own, else that which is installed with this program. The programs beside this one are in its PATH.
// Throws IoError where there is no such interpreter; that the package is missing is said by what this process has
// become then, which helps without it, too.
[[noreturn]] void hand_over_job(const std::vector<std::string>& words);

}  // namespace tessera::tools
