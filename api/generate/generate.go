// Package generate regenerates what is made from the types and messages of api: `go generate ./...` in this folder. It is a
// module of its own so that the generators and what they need stay out of the build of Basalt.
package generate

//go:generate go tool controller-gen object paths=../v1beta1
//go:generate go tool controller-gen crd paths=../v1beta1 output:crd:dir=../../deploy/crds
//go:generate go run ./crds ../../deploy/crds

// What other Go programs use the kinds with: apply configurations, a client and a fake.
//go:generate sh clients.sh

// Messages and records. protoc itself is Debian's package protobuf-compiler.
//go:generate sh -c "protoc --plugin=protoc-gen-go=$(go tool -n protoc-gen-go) --plugin=protoc-gen-go-grpc=$(go tool -n protoc-gen-go-grpc) -I ../wire --go_out=../wire --go_opt=paths=source_relative --go-grpc_out=../wire --go-grpc_opt=paths=source_relative basalt.proto relay.proto"
