# The queue work of its tutorials with Net::Stomp, in STOMP 1.0, as it speaks it by itself:
#
#     perl queue_work.pl PORT ROLE QUEUE [BODY...]
#
# `send` waits for the receipt of each body. `work` prints what it takes, and acknowledges it when a line comes in.
# `serve` answers in capitals, `call` prints the answers. What takes messages prints "ready" first.
use strict;
use warnings;
use Net::Stomp;

my ($port, $role, $queue, @bodies) = @ARGV;
$| = 1;
my $stomp = Net::Stomp->new({ hostname => '127.0.0.1', port => $port, reconnect_attempts => 1 });
$stomp->connect({ login => 'hello', passcode => 'there' })->command eq 'CONNECTED' or die 'not connected';

sub next_frame {
    my ($command) = @_;
    my $frame = $stomp->receive_frame or die 'the connection is gone';
    $frame->command eq $command or die $frame->as_string;
    return $frame;
}

sub consume {
    $stomp->subscribe({ destination => $queue, ack => 'client', 'prefetch-count' => 1, receipt => 'subscribed' });
    next_frame('RECEIPT');
    print "ready\n";
}

if ($role eq 'send') {
    for my $body (@bodies) {
        $stomp->send_with_receipt({ destination => $queue, body => $body }) or die 'no receipt';
    }
}
elsif ($role eq 'work') {
    consume();
    while (1) {
        my $frame = next_frame('MESSAGE');
        print $frame->body, "\n";
        defined <STDIN> or last;
        $stomp->ack({ frame => $frame });
    }
}
elsif ($role eq 'serve') {
    consume();
    while (1) {
        my $frame = next_frame('MESSAGE');
        my $headers = $frame->headers;
        $stomp->send({
            destination      => $headers->{'reply-to'},
            'correlation-id' => $headers->{'correlation-id'},
            body             => uc $frame->body,
        });
        $stomp->ack({ frame => $frame });
    }
}
elsif ($role eq 'call') {
    # As with RabbitMQ, nobody subscribes: to give a temporary queue as `reply-to` is enough.
    for my $number (0 .. $#bodies) {
        $stomp->send({
            destination      => $queue,
            'reply-to'       => '/temp-queue/answers',
            'correlation-id' => $number,
            body             => $bodies[$number],
        });
    }
    my %answers;
    for (@bodies) {
        my $frame = next_frame('MESSAGE');
        $answers{ $frame->headers->{'correlation-id'} } = $frame->body;
    }
    print $answers{$_}, "\n" for 0 .. $#bodies;
}
$stomp->disconnect;
