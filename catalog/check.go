package catalog

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/schema"
)

// refusalWait is the waiting time in the job of a call to no tool. It never
// waits; the job only opens its log.
const refusalWait = Duration(10 * time.Minute)

// Check judges a call with the argument text args, admitted now. The job holds
// what runs and opens the log even when the call is refused; it is to enter
// the queue only when the result is nil. A refusal is an error result whose
// text names everything that is wrong, so that a model can mend its call; it
// is in the job as well.
//
// Check does not touch c.Arguments: whether the text travels inline or as a
// blob is for the caller to decide. Nor does it judge c.Timeout, which is a
// fault of the request and not of the call ([Spec.CheckTimeout]).
func (c *Catalog) Check(cl call.Call, args string, now time.Time) (Job, *call.Result) {
	cl.Version = call.Version
	cl.ArgumentsDigest = call.Digest(args)
	job := Job{Version: call.Version, Call: cl, Admitted: now, Expires: now.Add(time.Duration(refusalWait))}
	e := c.find(cl.Tenant, cl.Tool)
	if e != nil {
		job.Spec, job.SpecDigest = &e.spec, e.digest
		job.Expires = now.Add(time.Duration(e.spec.QueueTimeout))
	}
	job.Refusal = c.refuse(cl, e, args)
	return job, job.Refusal
}

// refuse returns the answer to a call that must not run, or nil.
func (c *Catalog) refuse(cl call.Call, e *entry, args string) *call.Result {
	switch {
	case e == nil:
		return refusal(call.KindUnknownTool, c.unknown(cl.Tenant, cl.Tool))
	case e.spec.Type == TypeServer:
		return refusal(call.KindUnknownTool, fmt.Sprintf("The tool %s is run by the model's provider, not by this fleet; the call was not run.", e.spec.Name))
	}
	if problems := append(e.judge(args), e.spec.judgeFiles(cl.Files)...); problems != nil {
		return refusal(call.KindInvalidArguments, invalid(e.spec.Name, problems))
	}
	if e.spec.Approval == ApprovalRequired {
		return refusal(call.KindDeclined, fmt.Sprintf("Consent is required for the tool %s and this fleet cannot ask for it yet; the call was not run.", e.spec.Name))
	}
	return nil
}

func refusal(kind call.Kind, sentence string) *call.Result {
	r := call.Failure(kind, sentence)
	return &r
}

// judge lists what is wrong with the arguments.
func (e *entry) judge(args string) []schema.Problem {
	raw := []byte(args)
	if problems := schema.CheckJSON(raw, call.MaxArguments); problems != nil {
		return problems
	}
	if at := schema.LoneSurrogate(raw); at >= 0 {
		return []schema.Problem{{Message: fmt.Sprintf("has half a character, an escape \\u without its other half, at byte %d", at+1)}}
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return []schema.Problem{{Message: "is not an object"}}
	}
	return e.arguments.Validate(raw)
}

// invalid tells a model what to mend.
func invalid(tool string, problems []schema.Problem) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The arguments do not fit the tool %s, so it was not run. Mend them and call again:", tool)
	for _, p := range problems {
		b.WriteString("\n- ")
		if p.Path == "" {
			b.WriteString("arguments: ")
		}
		b.WriteString(p.String())
	}
	return b.String()
}

// unknown tells a model which tools there are.
func (c *Catalog) unknown(tenant, name string) string {
	var names []string
	for _, s := range c.List(tenant) {
		if s.Type != TypeServer {
			names = append(names, s.Name)
		}
	}
	sentence := fmt.Sprintf("There is no tool %q; the call was not run.", cut(name))
	near := suggest(name, names, maxSuggestions)
	switch {
	case len(near) == 0:
		return sentence + " No tools are available."
	case len(near) < len(names):
		return fmt.Sprintf("%s The nearest of %d tools: %s.", sentence, len(names), strings.Join(near, ", "))
	}
	return sentence + " Available tools: " + strings.Join(near, ", ") + "."
}
