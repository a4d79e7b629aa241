package catalog

import "testing"

// A tool that is as it was keeps its compiled schemas through a change of others.
func TestReplaceCompilesWhatChanged(t *testing.T) {
	c, err := New([]Spec{named("a", "1"), named("b", "1")})
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.find("", "a"), c.find("", "b")
	if err := c.Replace([]Spec{named("a", "1"), named("b", "2")}); err != nil {
		t.Fatal(err)
	}
	if c.find("", "a") != a {
		t.Error("what did not change was compiled again")
	}
	if now := c.find("", "b"); now == b || now.spec.Description != "2" || now.digest == b.digest {
		t.Error("what changed was not")
	}
}
