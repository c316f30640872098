#include "tessera/cluster/hub/hub_frame.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

constexpr size_t kHeadBytes = 5;  // length and kind
// Of what waits so much is encrypted at a time: one record of TLS.
constexpr size_t kPieceBytes = size_t{16} << 10;

// Decimal digits and nothing else; -1 for any other text and beyond the greatest int.
int parse_digits(std::string_view text) {
  int value = -1;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

}  // namespace

std::shared_ptr<const TlsContext> make_hub_context(const comm::Secret& secret, TlsSide side) {
  return TlsContext::with_secret(secret ? secret : secret.derive("a local socket of one user"), side, TlsUse::kHub);
}

void FrameReader::add(std::string_view bytes) {
  if (begin_ > 0) bytes_.erase(0, begin_);
  begin_ = 0;
  bytes_ += bytes;
}

bool FrameReader::next(Frame& frame) {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < 4) return false;
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) length |= static_cast<size_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
  if (length < 1 || length > kMaxFrame) {
    throw IoError("what arrives is no frame: {} bytes announced, where 1 to {} may come", length, kMaxFrame);
  }
  if (rest.size() < 4 + length) return false;
  frame.kind = static_cast<FrameKind>(rest[4]);
  frame.body = rest.substr(kHeadBytes, length - 1);
  begin_ += 4 + length;
  return true;
}

void FrameWriter::push(FrameKind kind, std::string body) {
  push(kind, std::make_shared<const std::string>(std::move(body)));
}

void FrameWriter::push(FrameKind kind, std::shared_ptr<const std::string> body) {
  std::string head(kHeadBytes, '\0');
  const size_t length = 1 + body->size();
  for (size_t i = 0; i < 4; ++i) head[i] = static_cast<char>(length >> (8 * i) & 0xFFU);
  head[4] = static_cast<char>(kind);
  parts_.push_back(std::make_shared<const std::string>(std::move(head)));
  if (!body->empty()) parts_.push_back(std::move(body));
  plain_bytes_ += 4 + length;
}

// Small parts, a head and its body, go as one record.
std::string FrameWriter::take_piece() {
  std::string piece;
  while (!parts_.empty() && piece.size() < kPieceBytes) {
    const std::string& part = *parts_.front();
    const size_t count = std::min(part.size() - begun_, kPieceBytes - piece.size());
    piece.append(part, begun_, count);
    begun_ += count;
    if (begun_ < part.size()) break;
    parts_.pop_front();
    begun_ = 0;
  }
  plain_bytes_ -= piece.size();
  return piece;
}

bool FrameWriter::flush(TlsSession& session, const Socket& socket) {
  while (true) {
    if (sent_ == output_.size()) {
      if (session.state() == TlsSession::State::kOpen) session.send(take_piece());
      output_ = session.take_output();
      sent_ = 0;
    }
    if (output_.empty()) {
      const TlsSession::State state = session.state();
      if (state == TlsSession::State::kOpen || state == TlsSession::State::kHandshake) return true;
      drop();
      return false;
    }
    const ssize_t count =
        send(socket.fd(), output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count <= 0) {
      drop();
      return false;
    }
    sent_ += static_cast<size_t>(count);
  }
}

void FrameWriter::drop() {
  parts_.clear();
  output_.clear();
  begun_ = plain_bytes_ = sent_ = 0;
}

std::string join_fields(const std::vector<std::string>& fields) {
  std::string body;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) body.push_back('\0');
    body += fields[i];
  }
  return body;
}

std::vector<std::string> split_fields(std::string_view body) {
  std::vector<std::string> fields;
  for (const std::string_view field : split(body, '\0')) fields.emplace_back(field);
  return fields;
}

std::string print_join(const JoinBody& join) {
  return join_fields({join.job_id, std::to_string(join.rank), std::to_string(join.size), join.host});
}

JoinBody parse_join(std::string_view body) {
  const std::vector<std::string> fields = split_fields(body);
  if (fields.size() != 4) throw IoError("a join has 4 fields, this one has {}", fields.size());
  JoinBody join{fields[0], parse_digits(fields[1]), parse_digits(fields[2]), fields[3]};
  if (join.rank < 0 || join.size < 0) throw IoError("a join's rank and size are numbers");
  if (join.job_id.size() > kMaxText || join.host.size() > kMaxText) {
    throw IoError("a join's texts have at most {} bytes", kMaxText);
  }
  return join;
}

std::string parse_name(std::string_view body) {
  if (body.size() > kMaxName) {
    throw IoError("the name of a value has {} bytes, at most {} may come", body.size(), kMaxName);
  }
  return std::string(body);
}

NamedValue parse_named_value(std::string_view body) {
  const size_t end = body.find('\0');
  if (end == std::string_view::npos) throw IoError("a value without a name");
  std::string name = parse_name(body.substr(0, end));
  if (body.size() - end - 1 > kMaxValue) {
    throw IoError("a value has {} bytes, at most {} may come", body.size() - end - 1, kMaxValue);
  }
  return {std::move(name), std::string(body.substr(end + 1))};
}

RankText parse_rank_text(std::string_view body, int size) {
  const size_t end = body.find('\0');
  if (end == std::string_view::npos) throw IoError("a message without its rank");
  return {parse_rank(body.substr(0, end), size), printable(body.substr(end + 1))};
}

int parse_rank(std::string_view body, int size) {
  const int rank = parse_digits(body);
  if (rank < 0 || rank >= size) throw IoError("a rank that is none of 0 to {}", size - 1);
  return rank;
}

}  // namespace tessera::cluster
