// Position: how far a data set has been read, in batches (in samples where nothing is batched). Saved in checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::data {

struct Position {
  int64_t epoch = 0;  // from 0
  int64_t batch = 0;  // the number in its epoch of the next batch to be delivered

  std::string to_string() const;  // "epoch=2 batch=17"
  bool operator==(const Position&) const = default;
};

// Parses to_string()'s form. Throws InvalidArgument naming the text.
Position parse_position(std::string_view text);

}  // namespace tessera::data
