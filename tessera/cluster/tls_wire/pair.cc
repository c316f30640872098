#include "tessera/cluster/tls_wire/pair.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"

namespace tessera::cluster {
namespace {

// TLS sends as much as one record.
constexpr size_t kRecordBytes = size_t{16} << 10;
// Until others have their turn.
constexpr int64_t kStepBytes = int64_t{128} << 10;
constexpr int64_t kTurnBytes = int64_t{2} << 20;
// What is kept for later messages.
constexpr size_t kMaxSpare = static_cast<size_t>(kCreditBytes / kEagerBytes);
constexpr size_t kMaxSmallSpare = 64;
constexpr size_t kSmallSpareBytes = 4096;
// What a rank that has gone wrong may make this one remember.
constexpr size_t kMaxArrivals = 1 << 14;
constexpr size_t kMaxTags = 1 << 16;
constexpr int64_t kMaxPermits = 1 << 20;

int64_t cost_of(int64_t bytes) { return bytes + kMessageCost; }

}  // namespace

Pair::Pair(int peer, std::unique_ptr<TlsStream> stream)
    : peer_(peer), stream_(std::move(stream)), staged_(kRecordBytes) {}

Pair::~Pair() = default;

std::string Pair::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

Pair::Moved Pair::start(Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  const int64_t before = num_done_;
  transfer.moved = 0;
  transfer.is_granted = false;
  transfer.is_requested = false;
  transfer.must_say_ready = false;
  transfer.is_done.store(false);
  if (state() != State::kOpen) {
    // What came before the other rank left is still to be had.
    const bool is_kept = state() == State::kLeft && !transfer.is_send && has_message(transfer);
    if (is_kept) match(transfer);
    return moved_since(before + (is_kept ? 1 : 0));
  }
  transfer.is_listed = true;
  if (transfer.is_send) {
    sends_.push_back(&transfer);
  } else {
    receives_.push_back(&transfer);
    match(transfer);
  }
  while (state() == State::kOpen && write_some() > 0) {
  }
  while (state() == State::kOpen && !can_write_) read_some();  // up to its end
  return moved_since(before + (transfer.is_done ? 1 : 0));
}

bool Pair::has_message(const Transfer& receive) const {
  const auto found = std::ranges::find_if(arrivals_, [&](const auto& one) { return one->tag == receive.tag; });
  return found != arrivals_.end() && !(*found)->is_request && (*found)->bytes == receive.bytes;
}

// Gives a receive what has come for it already, or asks for what is too large to come by itself.
void Pair::match(Transfer& receive) {
  const auto found = std::ranges::find_if(arrivals_, [&](const auto& one) { return one->tag == receive.tag; });
  if (found == arrivals_.end()) {
    receive.is_granted = receive.must_say_ready = receive.bytes > kEagerBytes;
    return;
  }
  std::unique_ptr<Arrival> arrival = std::move(*found);
  arrivals_.erase(found);
  if (arrival->bytes != receive.bytes) {
    return fail(fmt::format("{} bytes where {} are expected", arrival->bytes, receive.bytes));
  }
  if (arrival->is_request) {
    receive.is_granted = receive.must_say_ready = true;
  } else {
    if (receive.bytes > 0) std::memcpy(receive.data, arrival->data.data(), static_cast<size_t>(receive.bytes));
    finish(receive);
  }
  drop(std::move(arrival));
}

Pair::Moved Pair::move() {
  const std::lock_guard lock(mutex_);
  const int64_t before = num_done_;
  int64_t moved = 0;
  for (int64_t step = 1; step > 0 && moved < kTurnBytes && state() == State::kOpen; moved += step) {
    step = write_some();
    if (state() == State::kOpen) step += read_some();
  }
  Moved done = moved_since(before);
  done.has_more = done.is_open && moved >= kTurnBytes;
  return done;
}

// Sends up to kStepBytes. Returns how many have gone.
int64_t Pair::write_some() {
  int64_t written = 0;
  while (can_write_ && written < kStepBytes) {
    if (staged_begin_ == staged_end_ && outgoing_ == nullptr) stage();
    const bool is_staged = staged_begin_ < staged_end_;
    if (!is_staged && outgoing_ == nullptr) break;
    const std::byte* from = is_staged ? staged_.data() + staged_begin_ : outgoing_->data + outgoing_->moved;
    const size_t size = is_staged ? staged_end_ - staged_begin_ : static_cast<size_t>(outgoing_end_ - outgoing_->moved);
    size_t count = 0;
    const TlsStream::Result result = stream_->write(from, size, count);
    if (result == TlsStream::Result::kNotNow) break;
    if (result != TlsStream::Result::kMoved) {
      // The other rank may have said its last words before: they are read first.
      can_write_ = false;
      reason_ = "the connection " + stream_->reason();
      break;
    }
    written += static_cast<int64_t>(count);
    if (is_staged) {
      staged_begin_ += count;
    } else {
      outgoing_->moved += static_cast<int64_t>(count);
    }
    if (staged_begin_ < staged_end_ || outgoing_ == nullptr || outgoing_->moved < outgoing_end_) continue;
    Transfer& sent = *std::exchange(outgoing_, nullptr);
    if (sent.moved == sent.bytes) finish(sent);
  }
  return written;
}

// Puts what is to be said next into the buffer: frames, then the header and the first bytes of a message.
void Pair::stage() {
  staged_begin_ = staged_end_ = 0;
  stage_control();
  Transfer* const send = choose_send();
  if (send == nullptr) return;
  const bool is_eager = !send->is_granted;
  const int64_t length = is_eager ? send->bytes : std::min(kChunkBytes, send->bytes - send->moved);
  if (is_eager) credit_ -= cost_of(send->bytes);
  stage_frame({.kind = is_eager ? PairFrameKind::kEager : PairFrameKind::kData,
               .tag = send->tag,
               .bytes = static_cast<uint64_t>(length),
               .total = static_cast<uint64_t>(send->bytes)});
  const auto copied = std::min(static_cast<size_t>(length), staged_.size() - staged_end_);
  if (copied > 0) std::memcpy(staged_.data() + staged_end_, send->data + send->moved, copied);
  staged_end_ += copied;
  outgoing_ = send;
  outgoing_end_ = send->moved + length;
  send->moved += static_cast<int64_t>(copied);
}

// False where the buffer is full: room for a message's header stays.
bool Pair::stage_frame(const FrameHeader& header) {
  if (staged_end_ + 2 * kFrameHeaderBytes > staged_.size() && header.kind != PairFrameKind::kEager &&
      header.kind != PairFrameKind::kData) {
    return false;
  }
  print_frame_header(header, staged_.data() + staged_end_);
  staged_end_ += kFrameHeaderBytes;
  return true;
}

void Pair::stage_control() {
  if (owed_bytes_ >= kCreditBytes / 2) {
    stage_frame({.kind = PairFrameKind::kCredit, .bytes = static_cast<uint64_t>(owed_bytes_)});
    held_bytes_ -= owed_bytes_;
    owed_bytes_ = 0;
  }
  for (Transfer* receive : receives_) {
    if (!receive->must_say_ready) continue;
    if (!stage_frame({.kind = PairFrameKind::kReady, .tag = receive->tag})) return;
    receive->must_say_ready = false;
  }
}

bool Pair::has_older(const std::vector<Transfer*>& list, size_t index) const {
  return std::any_of(list.begin(), list.begin() + static_cast<ptrdiff_t>(index),
                     [&](const Transfer* other) { return other->tag == list[index]->tag; });
}

// The send whose turn it is among those that may go: the oldest of its tag, small and within the credit, or asked for.
Transfer* Pair::choose_send() {
  for (size_t i = 0; i < sends_.size(); ++i) {
    const size_t index = (next_send_ + i) % sends_.size();
    Transfer& send = *sends_[index];
    if (has_older(sends_, index)) continue;
    const bool is_small = send.bytes <= kEagerBytes;
    bool may_go = send.is_granted || (is_small && !send.is_requested && credit_ >= cost_of(send.bytes));
    if (!may_go) {
      const auto permit = permits_.find(send.tag);
      if (permit != permits_.end() && permit->second > 0) {
        --permit->second;
        may_go = send.is_granted = true;
      } else if (is_small && !send.is_requested) {
        send.is_requested =
            stage_frame({.kind = PairFrameKind::kRequest, .tag = send.tag, .bytes = static_cast<uint64_t>(send.bytes)});
      }
    }
    if (!may_go) continue;
    next_send_ = index + 1;
    return &send;
  }
  return nullptr;
}

// Receives up to kStepBytes. Returns how many have come.
int64_t Pair::read_some() {
  int64_t taken = 0;
  while (taken < kStepBytes && state() == State::kOpen) {
    std::byte* const into = is_in_frame_ ? into_ : header_ + header_bytes_;
    const size_t size =
        is_in_frame_ ? static_cast<size_t>(std::min(into_bytes_, kStepBytes)) : kFrameHeaderBytes - header_bytes_;
    size_t count = 0;
    const TlsStream::Result result = stream_->read(into, size, count);
    if (result == TlsStream::Result::kNotNow) {
      if (!can_write_) end(State::kLost, reason_);
      break;
    }
    if (result == TlsStream::Result::kEnded) {
      end(State::kLeft, "it has ended the connection");
      break;
    }
    if (result == TlsStream::Result::kFailed) {
      end(State::kLost, reason_.empty() ? "the connection " + stream_->reason() : reason_);
      break;
    }
    taken += static_cast<int64_t>(count);
    if (is_in_frame_) {
      into_ += count;
      into_bytes_ -= static_cast<int64_t>(count);
      if (into_bytes_ == 0) end_frame();
      continue;
    }
    header_bytes_ += count;
    if (header_bytes_ < kFrameHeaderBytes) continue;
    header_bytes_ = 0;
    take_header(parse_frame_header(header_));
  }
  return taken;
}

void Pair::take_header(const FrameHeader& header) {
  frame_ = header;
  switch (header.kind) {
    case PairFrameKind::kEager: return take_message(header);
    case PairFrameKind::kData: return take_chunk(header);
    case PairFrameKind::kReady: {
      if (permits_.size() >= kMaxTags && !permits_.contains(header.tag)) return fail("too many tags");
      if (++permits_[header.tag] > kMaxPermits) fail("too many messages asked for");
      return;
    }
    case PairFrameKind::kRequest: {
      if (header.bytes > static_cast<uint64_t>(kEagerBytes)) return fail("a request of a large message");
      if (Transfer* const receive = find_receive(header.tag, /*is_granted=*/false)) {
        if (receive->bytes != static_cast<int64_t>(header.bytes)) {
          return fail(fmt::format("{} bytes where {} are expected", header.bytes, receive->bytes));
        }
        receive->is_granted = receive->must_say_ready = true;
        return;
      }
      if (arrivals_.size() >= kMaxArrivals) return fail("too many messages at a time");
      arrivals_.push_back(new_arrival(header));
      return;
    }
    case PairFrameKind::kCredit: {
      if (header.bytes > static_cast<uint64_t>(kCreditBytes - credit_)) return fail("more credit than was used");
      credit_ += static_cast<int64_t>(header.bytes);
      return;
    }
  }
  fail("a frame of an unknown kind");
}

// A small message: into the memory that waits for it, or kept until it is asked for.
void Pair::take_message(const FrameHeader& header) {
  if (header.bytes > static_cast<uint64_t>(kEagerBytes) || header.total != header.bytes ||
      held_bytes_ + cost_of(static_cast<int64_t>(header.bytes)) > kCreditBytes) {
    return fail("a message beyond its credit");
  }
  held_bytes_ += cost_of(static_cast<int64_t>(header.bytes));
  incoming_ = find_receive(header.tag, /*is_granted=*/false);
  if (incoming_ == nullptr) {
    arriving_ = new_arrival(header);
    into_ = arriving_->data.data();
  } else if (incoming_->bytes != static_cast<int64_t>(header.bytes)) {
    return fail(fmt::format("{} bytes where {} are expected", header.bytes, incoming_->bytes));
  } else {
    incoming_->is_granted = true;  // nothing else is for it
    into_ = incoming_->data;
  }
  into_bytes_ = static_cast<int64_t>(header.bytes);
  is_in_frame_ = into_bytes_ > 0;
  if (!is_in_frame_) end_frame();
}

// A piece of a message that was asked for.
void Pair::take_chunk(const FrameHeader& header) {
  incoming_ = find_receive(header.tag, /*is_granted=*/true);
  if (incoming_ == nullptr) return fail("a message that was not asked for");
  if (header.total != static_cast<uint64_t>(incoming_->bytes)) {
    return fail(fmt::format("{} bytes where {} are expected", header.total, incoming_->bytes));
  }
  if (header.bytes > static_cast<uint64_t>(incoming_->bytes - incoming_->moved)) return fail("a message with a tail");
  into_ = incoming_->data + incoming_->moved;
  into_bytes_ = static_cast<int64_t>(header.bytes);
  is_in_frame_ = into_bytes_ > 0;
  if (!is_in_frame_) end_frame();
}

void Pair::end_frame() {
  is_in_frame_ = false;
  if (frame_.kind == PairFrameKind::kEager && incoming_ != nullptr) owed_bytes_ += cost_of(incoming_->bytes);
  if (Transfer* const receive = std::exchange(incoming_, nullptr)) {
    receive->moved += static_cast<int64_t>(frame_.bytes);
    if (receive->moved == receive->bytes) finish(*receive);
    return;
  }
  // A receive may have begun while it came.
  Transfer* const receive = find_receive(arriving_->tag, /*is_granted=*/false);
  arrivals_.push_back(std::move(arriving_));
  if (receive != nullptr) match(*receive);
}

// The oldest receive of the tag that nothing is under way for, or that bytes were asked for.
Transfer* Pair::find_receive(uint32_t tag, bool is_granted) const {
  for (Transfer* receive : receives_) {
    if (receive->tag == tag && receive->is_granted == is_granted) return receive;
  }
  return nullptr;
}

std::unique_ptr<Pair::Arrival> Pair::new_arrival(const FrameHeader& header) {
  std::unique_ptr<Arrival> arrival;
  if (spare_.empty()) {
    arrival = std::make_unique<Arrival>();
  } else {
    arrival = std::move(spare_.back());
    spare_.pop_back();
  }
  arrival->tag = header.tag;
  arrival->is_request = header.kind == PairFrameKind::kRequest;
  arrival->bytes = static_cast<int64_t>(header.bytes);
  if (!arrival->is_request) arrival->data.resize(static_cast<size_t>(header.bytes));
  return arrival;
}

// Its credit goes back; what it kept serves a later one.
void Pair::drop(std::unique_ptr<Arrival> arrival) {
  if (!arrival->is_request) owed_bytes_ += cost_of(arrival->bytes);
  const size_t most = arrival->data.capacity() <= kSmallSpareBytes ? kMaxSmallSpare : kMaxSpare;
  if (spare_.size() < most) spare_.push_back(std::move(arrival));
}

void Pair::finish(Transfer& transfer) {
  std::erase(transfer.is_send ? sends_ : receives_, &transfer);
  transfer.is_listed = false;
  ++num_done_;
  // The last touch: its owner may go.
  transfer.is_done.store(true);
}

void Pair::forget(Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  if (!transfer.is_listed) return;
  const bool has_begun = transfer.moved > 0 || transfer.is_granted || transfer.is_requested || outgoing_ == &transfer ||
                         incoming_ == &transfer;
  std::erase(transfer.is_send ? sends_ : receives_, &transfer);
  transfer.is_listed = false;
  if (has_begun) end(State::kLost, "a message was given up when it was half there");
}

void Pair::give_up(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (state() == State::kOpen) end(State::kLost, reason);
}

// What was under way stays undone.
void Pair::end(State state, const std::string& reason) {
  for (Transfer* transfer : sends_) transfer->is_listed = false;
  for (Transfer* transfer : receives_) transfer->is_listed = false;
  sends_.clear();
  receives_.clear();
  outgoing_ = incoming_ = nullptr;
  into_ = nullptr;
  reason_ = reason;
  state_.store(state, std::memory_order_release);
}

void Pair::leave() {
  const std::lock_guard lock(mutex_);
  while (state() == State::kOpen && write_some() > 0) {
  }
  stream_->end_sending();
  if (state() == State::kOpen) end(State::kLeft, "this rank has ended the connection");
}

bool Pair::is_delivered() {
  const std::lock_guard lock(mutex_);
  std::byte dropped[1 << 12];
  TlsStream::Result result = TlsStream::Result::kMoved;
  for (size_t count = 0; result == TlsStream::Result::kMoved;) {
    result = stream_->read(dropped, sizeof(dropped), count);
  }
  // One that has ended its side, too, waits for nothing more.
  return result != TlsStream::Result::kNotNow || stream_->is_delivered();
}

}  // namespace tessera::cluster
