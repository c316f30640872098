// RunRecord: what a log says, once, of the process that writes it: how it was started, by which version, on which
// ranks and with which options of the model, so that its training can be repeated and compared.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/train/callback.h"

namespace tessera::train {

struct RunRecord {
  int64_t wall_ms = 0;  // when the training began in this process, since 1970-01-01 UTC
  int64_t epoch = 0;    // both those behind which it began: 0 of a training from its beginning on
  int64_t step = 0;
  int64_t num_epochs = 0;
  int64_t steps_per_epoch = 0;
  std::vector<std::string> command;  // of the process, its program first; none where the system does not say
  std::string program;               // the file that runs: the interpreter of a script; "": not known
  std::string directory;             // in which the process works; "": not known
  std::string version;               // of Tessera
  int num_ranks = 1;
  int ranks_of_host = 1;
  int num_servers = 0;
  std::string transport;  // as Context has it
  std::string job;        // the launcher's name for it; "": there is no launcher
  int num_threads = 1;    // that a rank computes with
  std::string host;
  std::string cpu;
  int64_t num_cores = 0;  // that the system lets this process use
  std::string mode;       // "data_parallel"
  uint64_t seed = 0;
  // Options of the model that are not as they are by default, by name, as text; of a machine profile its name.
  std::map<std::string, std::string> options;
  // Variables of the environment that say which values are recorded, TESSERA_RECORD_VALUES and its like, and those by
  // which the command computes something else.
  std::map<std::string, std::string> variables;
};

// The name of the machine that this process runs on; "": not known.
std::string host_of_process();
// Describes this process, for a training that begins.
RunRecord run_record_of(const RunContext& run);
// One line of kind "run", without its end. Bytes that are no UTF-8 are replaced.
std::string json_line(const RunRecord& record);

}  // namespace tessera::train
