package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files as editors, Windows and enemies write them: each is read, or refused in
// one sentence with a line where there is one, and none takes long.
func TestParseHostileFiles(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for _, c := range "bcdefghi" {
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 9) + "]\n"
	}
	for name, test := range map[string]struct{ text, want string }{
		"byte order mark":      {"\ufeff" + minimal, ""},
		"carriage returns":     {strings.ReplaceAll(minimal, "\n", "\r\n"), ""},
		"no end of line":       {strings.TrimSpace(minimal), ""},
		"a document's marks":   {"---\n" + minimal + "...\n", ""},
		"UTF-16":               {"\xff\xfea\x00:\x00 \x001\x00", "a: unknown field"},
		"invalid UTF-8":        {strings.Replace(minimal, "description: d", "description: \"\xff\"", 1), "invalid"},
		"a NUL":                {minimal + "reminder: \"a\x00b\"\n", "control characters"},
		"a NUL, escaped":       {minimal + "command: [\"/tool\\0\"]\n", "is given twice"},
		"an alias bomb":        {minimal + bomb, "unknown field"},
		"an alias bomb inside": {minimal + "parameters:\n  type: object\n  default:\n    " + strings.ReplaceAll(strings.TrimSpace(bomb), "\n", "\n    ") + "\n", "aliases are not supported"},
		"a self-made alias":    {minimal + "outputSchema: &a {b: *a}\n", "aliases are not supported"},
		"10,000 levels":        {minimal + "outputSchema: " + strings.Repeat("{a: ", 10_000) + "1" + strings.Repeat("}", 10_000) + "\n", "is nested deeper than 64 levels"},
		"10,000 lists":         {minimal + "outputSchema: " + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "\n", "is nested deeper than 64 levels"},
		"1,000 levels":         {minimal + "outputSchema: " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "\n", "is nested deeper than 64 levels"},
		"10,000 levels down":   {minimal + "outputSchema:" + blocks(500), "is nested deeper than 64 levels"},
		"100,000 keys":         {minimal + "env: {" + strings.Repeat("a,", 100_000) + "}\n", "has 99900 more faults"},
		"a huge number":        {minimal + "maxInFlight: 99999999999999999999\n", "expected a whole number"},
		"a number as a key":    {minimal + "env: {1: a}\n", "expected a name of letters"},
		"a remote schema":      {minimal + "parameters: {type: object, properties: {a: {$ref: \"http://127.0.0.1:1/s\"}}}\n", "a schema may refer to itself only"},
		"another draft":        {minimal + "parameters: {type: object, $schema: \"http://example.com/draft\"}\n", "parameters: "},
		"a schema to nowhere":  {minimal + "parameters: {type: object, $ref: \"#/nowhere\"}\n", "parameters: "},
		"a bad pattern":        {minimal + "parameters: {type: object, properties: {a: {pattern: \"(\"}}}\n", "parameters: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(test.text))
			problems, ok := errors.AsType[Problems](err)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case test.want == "":
			case !ok:
				t.Errorf("err = %v", err)
			case !strings.Contains(problems.Error(), test.want):
				t.Errorf("%q is not in:\n%.2000s", test.want, problems.Error())
			case len(problems.Error()) > 64<<10:
				t.Errorf("the faults are %d bytes long", len(problems.Error()))
			}
		})
	}
}

// blocks is a mapping in a mapping, n times.
func blocks(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("\n" + strings.Repeat(" ", i+1) + "a:")
	}
	return b.String() + " 1\n"
}

// Names on disk that lead nowhere, in circles, or to what nobody may read.
func TestLoadDirHostileTrees(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good/tool.yaml", minimal)
	write(t, dir, "large/tool.yaml", minimal+strings.Repeat("#", 2*maxFile))
	for name, to := range map[string]string{
		"loop.tool.yaml": "loop.tool.yaml", "a.tool.yaml": "b.tool.yaml", "b.tool.yaml": "a.tool.yaml",
		"nowhere.tool.yaml": "gone", "passwd.tool.yaml": "/etc/passwd", "up.tool.yaml": "../../etc/passwd",
		"circle": ".", "good.tool.yaml": "good",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.tool.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := LoadDir(dir)
	problems, ok := errors.AsType[Problems](err)
	if !ok {
		t.Fatalf("err = %v", err)
	}
	var files []string
	for _, p := range problems {
		name, _ := filepath.Rel(dir, p.File)
		files = append(files, name)
		if strings.Contains(p.Message, "root:") {
			t.Errorf("a stranger's file is told of: %s", p)
		}
	}
	if got, want := strings.Join(files, " "), "a.tool.yaml b.tool.yaml good.tool.yaml large/tool.yaml loop.tool.yaml nowhere.tool.yaml passwd.tool.yaml up.tool.yaml"; got != want {
		t.Errorf("faulty files are %s, want %s\n%v", got, want, err)
	}
}
