package sshgate

import (
	"cmp"

	"relay"
	"relay/link"
	"relay/record"
)

// tunnelChannel returns the options of a channel to the client of a tunnel.
func (c *conn) tunnelChannel(owner int64) link.ChannelOptions {
	return link.ChannelOptions{
		Request: channelRequest, EOF: link.EOFUnlessLost, Guarded: true,
		Explains: c.announced.lazy.Load(), // only clients that dial at the first byte report a failed dial
		Budget:   c.srv.o.Budget, Account: owner,
		Cut: func() { c.srv.channelCut(c.Log(), owner) },
	}
}

// channelRequest handles a request in which relay up reports the end of a channel.
func channelRequest(ch *link.Channel, req *link.Request) {
	switch req.Type {
	case relay.DialFailedRequest:
		if why := dialFailure(req.Payload); why != nil {
			ch.Say(relay.ConnEnd{How: relay.ConnRefused, Refusal: why})
		}
	case relay.BrokeOffRequest:
		ch.Say(relay.ConnEnd{How: relay.ConnBrokeOff})
	}
}

// dialFailure decodes the payload of the request dial-failed@relay. It returns nil if the payload is malformed.
func dialFailure(payload []byte) *relay.Error {
	var d relay.DialFailed
	if link.Unmarshal(payload, &d) != nil {
		return nil
	}
	text := record.SafeTextMax(cmp.Or(d.Text, d.Class), 256)
	switch {
	case link.Reason(d.Reason) == link.ResourceShortage:
		return openRefusal(link.ResourceShortage, text)
	case d.Class == "unresolvable":
		return relay.Errorf(relay.CodeLocalUnresolvable, "the name of the local server does not resolve (%s); check the target", text)
	}
	return openRefusal(link.ConnectFailed, text)
}
