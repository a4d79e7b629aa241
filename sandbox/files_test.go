package sandbox_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// TestHostileFiles: an agent that lies about files ends its connection, and what
// the tool's end was is not a failure of ours.
func TestHostileFiles(t *testing.T) {
	for name, frames := range map[string][]string{
		"Empty":           {""},
		"NoOperation":     {"x{}"},
		"HostsOperation":  {"e"},
		"NotJSON":         {"b{"},
		"NegativeSize":    {`b{"name":"a","size":-1}`},
		"TooLarge":        {`b{"name":"a","size":101}`},
		"TooLargeInAll":   {`b{"name":"a","size":60}`, "d" + strings.Repeat("x", 60), `b{"name":"b","size":60}`},
		"TooMany":         {`b{"name":"a"}`, `b{"name":"b"}`, `b{"name":"c"}`},
		"Overflow":        {`b{"name":"a","size":60}`, "d" + strings.Repeat("x", 60), `b{"name":"b","size":9223372036854775807}`},
		"DataBeforeBegin": {"dx"},
		"MoreThanSaid":    {`b{"name":"a","size":1}`, "dxy"},
		"BeginInBetween":  {`b{"name":"a","size":2}`, "dx", `b{"name":"b"}`},
		"OtherGivenUp":    {`b{"name":"a","size":2}`, "dx", `l{"name":"b","reason":"is"}`},
		"Climbs":          {`b{"name":"../a"}`},
		"Absolute":        {`b{"name":"/a"}`},
		"Dot":             {`b{"name":"."}`},
		"NoName":          {`b{}`},
		"LongName":        {`b{"name":"` + strings.Repeat("n", 4000) + `"}`},
		"LongReason":      {`l{"name":"a","reason":"` + strings.Repeat("n", 4000) + `"}`},
		"EndlessLeft":     strings.Split(strings.Repeat(`l{"name":"a","reason":"is"}|`, wire.MaxLeft+1)+"l{}", "|"),
		"LeftAfterMore":   {`l{"more":7}`, `l{"name":"a","reason":"is"}`},
		"MoreNegative":    {`l{"more":-7}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := openFake(t, &fakeRuntime{agent: started(func(a *fakeAgent) {
					for _, f := range frames {
						a.send(wire.KindFile, f)
					}
					a.linger()
				})})
				p := prog
				p.FilesOut = sandbox.FilesOut{Files: 2, Bytes: 100}
				exit, err := sb.Run(t.Context(), p, sandbox.Sink{File: func(string, int64) io.Writer { return io.Discard }})
				if err != nil || exit.Cause != sandbox.CauseProtocol {
					t.Errorf("cause %q (%s), error %v", exit.Cause, exit.Detail, err)
				}
			})
		})
	}
	t.Run("NotAskedFor", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sb := openFake(t, &fakeRuntime{agent: started(func(a *fakeAgent) { a.send(wire.KindFile, `b{"name":"a"}`); a.linger() })})
			exit, err := sb.Run(t.Context(), prog, sandbox.Sink{})
			if err != nil || exit.Cause != sandbox.CauseProtocol {
				t.Errorf("cause %q, error %v", exit.Cause, err)
			}
		})
	})
}

// TestFilesThatBreakOff: what had come when the agent was lost is told not to be
// whole; and names are harmless.
func TestFilesThatBreakOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := openFake(t, &fakeRuntime{agent: started(func(a *fakeAgent) {
			a.send(wire.KindFile, `b{"name":"\u001b[31m","size":1}`)
			a.send(wire.KindFile, "dx")
			a.send(wire.KindFile, `b{"name":"half","size":9}`)
			a.send(wire.KindFile, "dxyz")
		})})
		files := map[string]*bytes.Buffer{}
		p := prog
		p.FilesOut = sandbox.FilesOut{Files: 2, Bytes: 100}
		exit, err := sb.Run(t.Context(), p, sandbox.Sink{File: func(name string, _ int64) io.Writer {
			files[name] = new(bytes.Buffer)
			return files[name]
		}})
		if err != nil || exit.Cause != sandbox.CauseProtocol {
			t.Fatalf("cause %q, error %v", exit.Cause, err)
		}
		if files["\uFFFD[31m"].String() != "x" || files["half"].String() != "xyz" {
			t.Errorf("files %v", files)
		}
		if len(exit.LeftOut) != 1 || exit.LeftOut[0].Name != "half" {
			t.Errorf("left out %v", exit.LeftOut)
		}
	})
}
