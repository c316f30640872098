#include "tessera/data/position.h"

#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::data {

std::string Position::to_string() const { return fmt::format("epoch={} batch={}", epoch, batch); }

Position parse_position(std::string_view text) {
  const auto words = split(trim(text), ' ');
  constexpr std::string_view kEpoch = "epoch=";
  constexpr std::string_view kBatch = "batch=";
  if (words.size() != 2 || !words[0].starts_with(kEpoch) || !words[1].starts_with(kBatch)) {
    throw InvalidArgument("data position \"{}\": must look like \"epoch=2 batch=17\"", text);
  }
  const Position position{parse_int(words[0].substr(kEpoch.size()), "epoch of a data position"),
                          parse_int(words[1].substr(kBatch.size()), "batch of a data position")};
  // What follows a position is counted from it.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  if (position.epoch < 0 || position.batch < 0 || position.epoch > kMost || position.batch > kMost) {
    throw InvalidArgument("data position \"{}\": epoch and batch must be from 0 to {}", text, kMost);
  }
  return position;
}

}  // namespace tessera::data
