package egress

import (
	"context"
	"io"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
)

// maxQuestion is more than a question has.
const maxQuestion = 4 << 10

// nameTTL is how long an answer may be kept, in seconds. It does not change.
const nameTTL = 60

// serveName answers one question for a name. Nothing is asked of anybody: the
// names are the tool's own, and all others do not exist. So no question of a tool
// ever leaves the worker, whatever it is meant to carry.
func (c *Call) serveName(_ context.Context, conn *sandbox.Stream) {
	question, err := io.ReadAll(io.LimitReader(conn, maxQuestion))
	if err != nil {
		return
	}
	if answer, missing := answerName(question, c.names); answer != nil {
		if missing != "" {
			c.tell(entry{to: missing, reason: reasonNotAllowed, detail: missing + " was asked for, and is not an exact name of the tool's network.allow"})
		}
		_, _ = conn.Write(answer)
	}
}

// answerName answers a question, or returns nil for what is none. missing is the
// name when it does not exist.
func answerName(question []byte, names map[string]netip.Addr) (answer []byte, missing string) {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil || h.Response || h.OpCode != 0 {
		return nil, ""
	}
	q, err := p.Question()
	if err != nil {
		return nil, ""
	}
	addr, known := netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	name, err := catalog.NormalName(q.Name.String())
	if name != "localhost" {
		addr, known = names[name]
	}
	reply := dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true, Authoritative: true}
	if err != nil || !known {
		reply.RCode = dnsmessage.RCodeNameError
		missing = name
	}
	b := dnsmessage.NewBuilder(nil, reply)
	b.EnableCompression()
	if b.StartQuestions() != nil || b.Question(q) != nil {
		return nil, ""
	}
	if known && q.Class == dnsmessage.ClassINET && q.Type == dnsmessage.TypeA {
		rh := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: nameTTL}
		if b.StartAnswers() != nil || b.AResource(rh, dnsmessage.AResource{A: addr.As4()}) != nil {
			return nil, ""
		}
	}
	answer, err = b.Finish()
	if err != nil {
		return nil, ""
	}
	return answer, missing
}
