// MessageChannel: the messages of one kind that pass from a rank of one stage of a pipeline to a rank of another: a
// lane with a thread of its own, and what travels for each slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/executor/comm_lane.h"
#include "tessera/mesh/box.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/tensor.h"
#include "tessera/timeline/timeline_recorder.h"

namespace tessera::session {

struct MessageChannel {
  std::unique_ptr<executor::CommLane> lane;
  std::vector<executor::CommLane::Task> tasks;  // by slot
  // On a device: copies of the lane's own, which come after what is done with a slot when its message starts.
  std::unique_ptr<Queue> queue;
  std::vector<std::unique_ptr<Event>> may_start;
};

// Rows of a table of which a message has as many as there are: each with its number, which has come before. Behind the
// last number that is not negative there are none, and nothing is sent.
struct CountedRows {
  size_t numbers = 0;  // which of the channel's values are the rows' numbers, i32 or i64: one that comes before them
  size_t rows = 0;     // and which are the rows: the numbers' dims, and those of a row
  std::string table = {};
  int64_t num_rows = 0;      // of the table
  bool clears_rest = false;  // whether places of rows that do not come become 0 where they are received
};

// Rows of a table that the receiver wants at several places, each of which a message has once: places come first, i32,
// one for each place of the receiver's, which say which of the rows that follow belongs there, in the order in which
// they first come; -1: zeros. How many rows follow, the places say.
struct ListedRows {
  // Which of the channel's values: where the receiver wants them, dense, with a last dim that a row has; of the sender,
  // [n, size], the rows that it has, of which the elements of one lie side by side.
  size_t rows = 0;
  std::string table = {};
  // Of the sender alone, by slot: of each place of the receiver's, which row it wants, i32, counted from the one of
  // `begins` that goes with its index in dim 0; -1: none.
  std::vector<TensorView> places = {};
  std::vector<int64_t> begins = {};
  // Where the receiver reads them in the sender's part of the table (session/messages/rows_in_place.h), which is what
  // `rows` says of the sender. Of both: how many elements the part has; of the sender alone: the rest.
  struct InPlace {
    int64_t num_elements = 0;
    mesh::Range own = {};  // as in RowsInPlace
    int64_t first_element = 0;
    int64_t size = 0;  // in elements, of what the receiver wants of a row
    bool says_none = false;
    std::vector<TensorView> numbers = {};  // by slot
  };
  std::optional<InPlace> in_place = std::nullopt;
};

// Where the channel's messages are timed, and as what.
struct MessageTimes {
  timeline::TimelineRecorder* recorder = nullptr;  // null: nowhere
  std::string way;                                 // the same on both sides, and of one channel alone
};

// Of what lies at these places, by slot, which is sent or received by the rank of `pair` that calls: whole values or
// pieces of them, with any strides. `device` may be null: the places are in the host's memory. `who` is named by
// errors. A task that receives rows throws IoError for a number that is none of their table's rows, and for a place of
// none of the rows that come; the transport compares how many come with how many numbers, or places, say it. Listed
// rows are of the host's memory.
MessageChannel make_message_channel(comm::Communicator& pair, bool sends,
                                    const std::vector<std::vector<TensorView>>& by_slot, Device* device, int rank,
                                    const std::string& who, const MessageTimes& times = {},
                                    const std::vector<CountedRows>& counted = {},
                                    const std::vector<ListedRows>& listed = {});

}  // namespace tessera::session
