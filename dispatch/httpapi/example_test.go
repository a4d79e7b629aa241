package httpapi_test

import (
	"fmt"
	"strings"

	"github.com/toolfleet/toolfleet/dispatch/httpapi"
)

func ExampleReadTokens() {
	tokens, err := httpapi.ReadTokens(strings.NewReader(`
# one "tenant token" a line
acme 7Xq2mJ4vT9bKcW0sLrYd
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tokens.Tenant("7Xq2mJ4vT9bKcW0sLrYd"))
	// Output: acme true
}
