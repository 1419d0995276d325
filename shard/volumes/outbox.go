package volumes

import "basalt.dev/basalt/shard/event"

// outbox holds the outputs, in order.
type outbox struct{ out []event.Output }

func (o *outbox) tell(ev event.Event) { o.out = append(o.out, event.Tell{Event: ev}) }
