// `tessera calibrate`: how fast this machine or a device of it is, for simulations and plans of jobs on machines like
// it.
#pragma once

#include <string>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {

struct CalibrateOptions {
  int num_threads = 1;    // the compute threads of a rank
  std::string device;     // "cuda:0", as session::SessionOptions::device has it; empty or "cpu": the processor
  std::string links;      // with a device: the machine whose links between ranks are taken, by name or file
  std::string out;        // a file for the profile; empty: it is the text
  bool progress = false;  // a line for each figure, on standard error
};

// Takes seconds, at most a minute. Ranks are threads, each with so many for its work, and as many of them as the host
// has room for are at work at once; links are measured in groups of 2, 4, ... up to all of them. The memory of a rank
// is its share of what this process may use. Other hosts cannot be measured from here: they are taken to be 10 Gbit/s
// and 50 us away.
compiler::MachineProfile measure_machine(const CalibrateOptions& options);

// Whether that is a device with memory of its own.
bool is_of_device(const CalibrateOptions& options);
// The same for ranks that have a device like this one each, as many on a host as there are here; the memory is what
// nobody uses of it now. Links between ranks are not measured: without `links` devices are taken to reach each other
// through the host's memory, and other hosts to be 10 Gbit/s and 50 us away. Throws as a session does where there is no
// such device, and as compiler::read_machine does.
compiler::MachineProfile measure_device(const CalibrateOptions& options);

// That the profile was measured on a busy machine, where it was: a line that begins with the file's name; else "".
std::string busy_warning(const compiler::MachineProfile& profile, const std::string& file);

// The profile as JSON, or, where it goes to a file, what was measured. Throws IoError when it cannot be written.
std::string calibrate_text(const CalibrateOptions& options);

}  // namespace tessera::tools
