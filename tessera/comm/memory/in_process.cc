#include "tessera/comm/memory/in_process.h"

#include <cstring>
#include <new>

namespace tessera::comm {

class InProcessTransport final : public Transport {
 public:
  explicit InProcessTransport(std::shared_ptr<InProcessWorld> world) : world_(std::move(world)) {}

  std::string name() const override { return "threads"; }
  std::unique_ptr<Communicator> create_communicator(const GroupInfo& group) override {
    std::shared_ptr<void> board = world_->board_of(group);
    void* memory = board.get();
    return make_board_communicator(
        group, std::make_unique<Board>(group, memory, std::move(board), std::make_shared<PointerSpace>(), world_->job_,
                                       world_->options_));
  }

 private:
  std::shared_ptr<InProcessWorld> world_;
};

InProcessWorld::InProcessWorld(int size, const WaitOptions& wait, const SimulatedLink& link)
    : job_(size), options_{.wait = wait, .link = link} {}

std::unique_ptr<Transport> InProcessWorld::transport(std::shared_ptr<InProcessWorld> world) {
  return std::make_unique<InProcessTransport>(std::move(world));
}

std::shared_ptr<void> InProcessWorld::board_of(const GroupInfo& group) {
  constexpr std::align_val_t kAlignment{64};
  const std::lock_guard lock(mutex_);
  // A member that is done with the group before another has joined leaves its board to the others.
  Entry& entry = boards_[{group.number, group.part}];
  if (entry.board == nullptr) {
    const size_t bytes = board_bytes(static_cast<int>(group.ranks.size()), options_);
    void* memory = ::operator new(bytes, kAlignment);
    std::memset(memory, 0, bytes);
    initialize_board(memory, group, options_);
    entry.board = std::shared_ptr<void>(memory, [](void* p) { ::operator delete(p, kAlignment); });
    entry.num_missing = static_cast<int>(group.ranks.size());
  }
  std::shared_ptr<void> board = entry.board;
  if (--entry.num_missing == 0) boards_.erase({group.number, group.part});
  return board;
}

}  // namespace tessera::comm
