#include "tessera/cluster/rendezvous/connection.h"

#include <fcntl.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/post.hpp>
#include <asio/write.hpp>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::cluster::rendezvous {
namespace {

// What the other side may leave unread, a blob and all that is small.
constexpr size_t kMaxUnsent = size_t{16} << 20;
// A frame of 8 MiB takes as long at 2 Mbit/s.
constexpr int64_t kHalfFrameMs = 30000;
constexpr int64_t kLastWordsMs = 2000;

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, std::string address, std::shared_ptr<const TlsContext> tls,
                       Sender from)
    : socket_(std::move(socket)), address_(std::move(address)), session_(std::move(tls)), decoder_(from) {
  asio::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);  // of no concern to programs that this one starts
}

std::string Connection::own_address() const {
  asio::error_code error;
  const auto endpoint = socket_.local_endpoint(error);
  return error ? "" : endpoint.address().to_string();
}

void Connection::start(ConnectionEvents events) {
  events_ = std::move(events);
  take({});  // a client speaks first
  if (!has_ended_) read();
}

void Connection::read() {
  // Waits without a buffer: who is silent costs a socket.
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](const asio::error_code& failure) {
    if (self->has_ended_) return;
    try {
      failure ? self->close(failure.message()) : self->read_some();
      if (!self->has_ended_) self->read();
    } catch (const std::exception& e) {  // no memory for it
      self->close(e.what());
    }
  });
}

void Connection::read_some() {
  std::array<char, 1 << 14> buffer;
  asio::error_code error;
  const size_t count = socket_.read_some(asio::buffer(buffer), error);
  if (error == asio::error::would_block || error == asio::error::try_again) return;
  if (error == asio::error::eof) return close(ends_when_sent_ ? "" : "its connection has ended");
  if (error) return close(error.message());
  // What comes behind the last words is read for the peer's sake alone: it would not hear them otherwise.
  if (!ends_when_sent_) take({buffer.data(), count});
}

void Connection::take(std::string_view arrived) {
  std::string said;
  session_.receive(arrived, said);
  flush();
  if (has_ended_) return;
  const bool is_first = session_.state() == TlsSession::State::kOpen && !std::exchange(was_open_, is_open());
  if (is_first && events_.open) events_.open();
  decoder_.add(said);
  take_frames();
  if (has_ended_) return;
  if (session_.state() == TlsSession::State::kFailed) return close(session_.error());
  if (session_.state() == TlsSession::State::kEnded) return close("it has ended the connection");
}

void Connection::take_frames() {
  while (!has_ended_ && !ends_when_sent_) {
    std::optional<RawFrame> frame = decoder_.next();
    FrameError error = decoder_.error().value_or(FrameError{});
    std::optional<Message> message;
    if (frame) message = parse_message(*frame, error);
    if (!frame && error.what.empty()) break;
    half_since_ms_ = 0;
    if (message) {
      events_.message(frame->generation, *message);
      continue;
    }
    if (!was_open_ || session_.context_side() != TlsSide::kServer) return close(error.what);
    send(Refused{error.what}, 0);
    end_when_sent();
  }
}

void Connection::send(const Message& message, uint64_t generation) {
  if (!is_open() || ends_when_sent_) return;
  session_.send(print_message(message, generation));
  flush();
}

void Connection::flush() {
  std::string bytes = session_.take_output();
  if (!bytes.empty()) {
    unsent_bytes_ += bytes.size();
    unsent_.push_back(std::move(bytes));
  }
  if (unsent_bytes_ > kMaxUnsent) return close("it has stopped reading what it is told");
  write();
}

void Connection::write() {
  if (is_writing_ || has_ended_ || unsent_.empty()) return;
  asio::async_write(socket_, asio::buffer(unsent_.front()),
                    [self = shared_from_this()](const asio::error_code& failure, size_t /*count*/) {
                      self->is_writing_ = false;
                      if (self->has_ended_) return;
                      if (failure) return self->close(failure.message());
                      self->unsent_bytes_ -= self->unsent_.front().size();
                      self->unsent_.pop_front();
                      if (self->unsent_.empty() && self->ends_when_sent_) return self->end_sending();
                      self->write();
                    });
  is_writing_ = true;
}

void Connection::end_when_sent() {
  if (has_ended_ || ends_when_sent_) return;
  session_.end();
  flush();
  ends_when_sent_ = true;
  if (!has_ended_ && unsent_.empty()) end_sending();
}

void Connection::end_sending() {
  asio::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

void Connection::close(const std::string& reason) {
  if (std::exchange(has_ended_, true)) return;
  const auto self = shared_from_this();  // the events may let go of this
  // What fits into the socket's buffer still goes: an alert, a reason.
  asio::error_code ignored;
  if (!is_writing_) {
    for (const std::string& bytes : unsent_) socket_.write_some(asio::buffer(bytes), ignored);
  }
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  if (events_.end) events_.end(reason);
  // One of the events may be what calls this: they stay until it has returned.
  asio::post(socket_.get_executor(), [self] { self->events_ = {}; });
}

void Connection::tick(int64_t now_ms) {
  if (has_ended_) return;
  if (ends_when_sent_) {
    if (ends_at_ms_ == 0) ends_at_ms_ = now_ms + kLastWordsMs;
    if (now_ms >= ends_at_ms_) close("it has not taken its last words");
    return;
  }
  if (decoder_.waiting_bytes() == 0) {
    half_since_ms_ = 0;
  } else if (half_since_ms_ == 0) {
    half_since_ms_ = now_ms;
  } else if (now_ms - half_since_ms_ >= kHalfFrameMs) {
    close("a frame of it has been half there for too long");
  }
}

}  // namespace tessera::cluster::rendezvous
