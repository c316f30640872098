#include "tessera/train/modes/mode.h"

namespace tessera::train {
namespace {

// Each rank by itself.
class StandAlone final : public Mode {
 public:
  using Mode::Mode;
  bool is_shared() const override { return false; }
};

}  // namespace

std::unique_ptr<Mode> make_stand_alone(const ModeParts& parts) { return std::make_unique<StandAlone>(parts); }

}  // namespace tessera::train
