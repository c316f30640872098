// Schedules as text that reads back, and as a picture.
#pragma once

#include <string>
#include <string_view>

#include "tessera/pipeline/pipeline_schedule.h"

namespace tessera::pipeline {

// "forward c3 m5": of chunk 3 for micro-batch 5; "update".
std::string to_string(const Phase& phase);

//     pipeline_schedule 2 stages
//     stage 0
//       0..10 forward c0 m0
//       40..50 backward c0 m0
//       50..52 update
//     stage 1
//       ...
//     transfers
//       10..12 forward c0 m0
//
// A phase from its start to its end; a transfer, named for its sender, from its start to its arrival.
// parse(print(schedule)) == schedule.
std::string print(const PipelineSchedule& schedule);
// Throws InvalidArgument naming the line that is not of that form. What is read need not be sound: verify it.
PipelineSchedule parse_pipeline_schedule(std::string_view text);

struct PictureOptions {
  int64_t column_ns = 0;  // the time that a column stands for; 0: one that all starts and ends are multiples of
  int max_columns = 240;  // a column stands for more where there would be more
  int max_width = 0;      // of a line, in characters, as far as one column fits; 0: as wide as the columns are
};

// Stage by time: a line for each stage, a cell for each phase, as wide as it is long.
//
//     stage 0 |F0 F1 .. .. B0 -- B1 --|
//     stage 1 |.. F0 B0 -- F1 B1 -- ..|
//
// F, B, W and U are forward, backward, weight gradient and update; the number is the micro-batch. Where stages have
// several chunks, the chunk stands before it: F2.0 is forward of chunk 2. "--" goes on with the phase, ".." is idle.
// Where several phases begin in a column, the first is shown.
std::string picture(const PipelineSchedule& schedule, const PictureOptions& options = {});
// How to read it, in one line: "F forward, B backward, and the micro-batch; -- goes on, .. idle; a column is 1.20 ms".
// Says how many phases are not seen because others begin in their column.
std::string legend(const PipelineSchedule& schedule, const PictureOptions& options = {});

}  // namespace tessera::pipeline
