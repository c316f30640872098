// Survey: what the ranks of a job know of the ways between them before they connect for good. A job whose ranks do not
// all reach each other does not begin; a survey says which of them do not, and what each says of its host.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::cluster {

// One rank does not reach another one.
struct Gap {
  int rank = 0;
  int peer = 0;
  std::string address;  // at which it has sought it, or at which it has waited for it
  std::string why;
};

struct Survey {
  int rank = 0;  // this process's
  int size = 1;
  std::vector<std::string> words;  // by rank, as Surveyor::words has them; "" where the rank has not come
  std::vector<Gap> gaps;
  std::string missing;  // which ranks have not come, in words; "" where all have
};

struct Surveyor {
  // What a rank tells the others of itself, up to some thousand bytes.
  std::function<std::string(int rank)> words;
  // Called by each rank that has heard of the others where some do not reach each other, or, by rank 0, where some have
  // not come. Returns the exit code of the process.
  std::function<int(const Survey& survey)> report;
};

// Thrown by join_job() where a surveyor has reported: the job does not begin.
class SurveyEnd : public IoError {
 public:
  explicit SurveyEnd(int code) : IoError("ranks of this job do not reach each other"), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace tessera::cluster
