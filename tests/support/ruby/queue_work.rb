# The queue work of its tutorials with the gem `stomp`, in STOMP 1.2:
#
#     ruby queue_work.rb PORT ROLE QUEUE [BODY...]
#
# `send` waits for the receipt of each body. `work` prints what it takes, and acknowledges it when a line comes in.
# `serve` answers in capitals, `call` prints the answers. What takes messages prints "ready" first.
require "stomp"

port, role, queue, *bodies = ARGV
$stdout.sync = true
STOMP = Stomp::Connection.new(
  hosts: [{ login: "hello", passcode: "there", host: "127.0.0.1", port: Integer(port) }],
  reliable: false,
  connect_headers: { "accept-version" => "1.2", "host" => "127.0.0.1" }
)
raise STOMP.connection_frame.to_s unless STOMP.connection_frame.command == "CONNECTED"

def next_frame(command)
  frame = STOMP.receive or raise "the connection is gone"
  raise frame.to_s unless frame.command == command
  frame
end

def subscribe(destination, **headers)
  STOMP.subscribe(destination, { id: "mine", receipt: "subscribed", **headers })
  next_frame("RECEIPT")
end

def consume(queue)
  subscribe(queue, ack: "client-individual", "prefetch-count": "1")
  puts "ready"
end

case role
when "send"
  bodies.each do |body|
    STOMP.publish(queue, body, receipt: body)
    next_frame("RECEIPT")
  end
when "work"
  consume(queue)
  loop do
    message = next_frame("MESSAGE")
    puts message.body
    break if $stdin.gets.nil?
    STOMP.ack(message.headers["ack"])
  end
when "serve"
  consume(queue)
  loop do
    request = next_frame("MESSAGE")
    STOMP.publish(request.headers["reply-to"], request.body.upcase,
                  "correlation-id" => request.headers["correlation-id"])
    STOMP.ack(request.headers["ack"])
  end
when "call"
  # As with ActiveMQ, it subscribes to a temporary queue of its own first.
  subscribe("/temp-queue/answers", ack: "auto")
  bodies.each_with_index do |body, number|
    STOMP.publish(queue, body, "reply-to" => "/temp-queue/answers", "correlation-id" => number.to_s)
  end
  answers = bodies.map { next_frame("MESSAGE") }.to_h { |frame| [frame.headers["correlation-id"], frame.body] }
  bodies.each_index { |number| puts answers[number.to_s] }
end
STOMP.disconnect
